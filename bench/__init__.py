"""How fast Noonmark is, beside the libraries people use today: `python -m bench`, or `make bench`.

Speed is reported as ratios from one run on one machine. Contestants take turns and the best of several short rounds
counts, so that whatever else the machine is doing hits them alike. Nobody is timed before the answers are checked.
"""
