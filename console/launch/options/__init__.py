"""The launch request: options, lists, load files, environment, program."""
