"""Program that runs in each pod of a job: it reads the pod's rank and starts the pod's part of the training.

    python -m qinglan.jobs.inside --join torchrun|ray --nodes N --per-node G -- ARGV...

node_info.py    read this pod's rank from training-operator's variables; set the variables that ms-swift needs
rendezvous.py   connection that each worker holds to the head for as long as the worker lives
head.py         rank 0 of a Ray cluster: waits for workers, runs the training, detects lost nodes, ends Ray
worker.py       the other ranks: each adds its machine to Ray until the head has ended
raylet.py       `ray start`, and the number of nodes that Ray itself knows

ms-swift starts torchrun only if NPROC_PER_NODE or NNODES is set. training-operator sets RANK and WORLD_SIZE; if only
these were set, every pod would train a separate model without an error. So this program removes training-operator's
variables and sets ms-swift's. The training then checks how many processes train together
(components/training/sft/plugin/together.py).

A Ray job ends in one of three ways:
1. The command ends. The head exits with the command's code, and tells the workers, which exit with 0. So only the
   head's pod shows a failure.
2. A worker is lost. Its connection closes; the head ends the command and exits with an error that names the pod.
3. The head is lost. Each worker exits with an error.
"""
