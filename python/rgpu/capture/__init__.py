"""Graphs: what ``torch.compile`` captured, kept by the server and run by one record a call.

``backend`` is what ``torch.compile`` calls, ``translate`` makes the wire's graph of an FX graph,
``symbols`` and ``results`` are about sizes that differ between calls, ``stored`` calls and lists
graphs. Nothing here is imported before it is used: it needs ``torch._dynamo``.
"""
