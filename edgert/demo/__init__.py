"""`edgert demo`: the whole way from this machine's sensors to a fleet table, as child processes of one command."""
