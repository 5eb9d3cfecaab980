"""The program in the pods of a job: each finds its place among the others, and starts its part.

    python -m qinglan.jobs.inside --join torchrun|ray --nodes N --per-node G -- ARGV...

node_info.py    this pod's rank by training-operator's environment; the variables by which ms-swift joins its nodes
rendezvous.py   each worker holds a connection to the head for as long as it lives
head.py         rank 0 of a Ray cluster: waits for all, runs the training, notices lost nodes, ends the cluster
worker.py       the other ranks: they lend their machine until the head has ended
raylet.py       `ray start`, and how many nodes Ray itself knows of

ms-swift starts torchrun only if NPROC_PER_NODE or NNODES is set. training-operator sets RANK and WORLD_SIZE, and with
these alone every pod trains a model of its own, in silence. So those are taken away here, the others are set, and
the training itself looks how many train together (components/training/sft/plugin/together.py).

A Ray job ends in one of three ways. The command ends: the head tells the workers, they end with 0, and the head with
the command's code, so that the pod that failed is the one to read. A worker is lost: its connection closes, and the
head ends the command and then with an error that names the pod. The head is lost: each worker ends with an error.
"""
