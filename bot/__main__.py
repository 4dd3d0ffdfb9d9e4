"""`python -m bot`: the command `moorings`, without the script.

What lives here: the call. What does not: commands (cli.py).
"""

from bot.cli import main

main()
