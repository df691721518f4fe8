"""Compiles graphs for rgpu-opserver, in a process of its own that the server starts.

``python -m rgpu_compile`` reads jobs and writes answers (``__main__``); ``program`` runs a graph as
Python calls PyTorch, so that it can be exported; ``compiler`` makes a package of it.
"""
