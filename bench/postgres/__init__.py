"""What a scheduler can do on a database server, beside a raw loop and the libraries people use today.

Every contestant gets an agenda, which says what is due when, and gives back how late each job started and when the last
end was written. Each measurement has a process and a database of its own.
"""
