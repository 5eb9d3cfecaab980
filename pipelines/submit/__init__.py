"""`qinglan submit`: a graph is read, its needs are looked for in the cluster, then it is started and followed.

graph     the YAML that goes up, and that it is sound
needs     what its pods want, from the YAML alone
looking   what the cluster has
judging   what is missing, and the command that makes it: a pure function of those two
service   KFP's API
starting  all of it in order
following a run to its end; pods: what KFP does not tell of them
"""
