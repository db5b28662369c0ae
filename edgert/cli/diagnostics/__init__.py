"""`edgert diagnostics`: what a bug report needs to know of this machine, without secrets."""
