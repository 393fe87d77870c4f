"""What ranks find on their PATH and PYTHONPATH under ``yod --io``: the command and the module ``yodio``."""
