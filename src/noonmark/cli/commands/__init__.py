"""The commands, a module for each noun. `noonmark.cli.app` names them and loads a module when it is called."""
