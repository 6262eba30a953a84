# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
"""train.py: your own training loop, here on one sentence."""

import torch
from loopscope import record, save

from model import LoopedLM  # your own model.py

model, ids = LoopedLM(), torch.tensor([list(b"to be or not to be")])
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(101):
    loss = torch.nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[0, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 50 == 0:
        seen = record(model, "block", run=lambda: model(ids), decode=model.read, tokens=ids, labels=chr, name=f"step {step}")
        save(seen, f"runs/step-{step}", overwrite=True)
