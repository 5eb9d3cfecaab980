# The first process of a container, in mount and PID namespaces of its own: ROOT holds what container.py wrote.
# The root is an overlay of this machine's file system, so that nothing a container writes reaches the machine.
set -e
root=$1
mount -t overlay overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" "$root/root"
for name in sys dev; do mount --rbind "/$name" "$root/root/$name"; done
mount -t proc proc "$root/root/proc"
mount -t tmpfs tmpfs "$root/root/run"
while IFS='	' read -r source target; do
  if [ -d "$source" ]; then mkdir -p "$root/root$target"; else mkdir -p "$(dirname "$root/root$target")"; : >> "$root/root$target"; fi
  mount --bind "$source" "$root/root$target"
done < "$root/mounts"
exec "$2" -c "$3" "$root"
