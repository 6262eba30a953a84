"""What a learned exit gate says: probability of stopping at each loop, and of having stopped just there."""

import numpy as np
from jaxtyping import Float32

from model.capture.trajectory import ReadoutKey

GATE_LENS = "gate"
"""Stands where a lens would: these numbers come from the gate's own weights, not from the head."""


def gate_readouts(logits: Float32[np.ndarray, "loops tokens"]) -> dict[ReadoutKey, np.ndarray]:
    """Logit, probability and exit probability per loop, k = 1..K, all float32.

    p_k = sigmoid(logit_k); exit_k = p_k prod_{j<k} (1 - p_j), and the last loop takes what is left, so that the
    exit probabilities of a token sum to 1 and depend on K (Ouro, arXiv 2510.25741).
    """
    with np.errstate(over="ignore"):  # exp of a large number is Inf, and 1 / (1 + Inf) the right 0
        probability = (1 / (1 + np.exp(-logits))).astype(np.float32)
    left = np.cumprod(1 - probability, axis=0, dtype=np.float32)
    before = np.concatenate([np.ones_like(left[:1]), left[:-1]])
    leaves = probability * before
    leaves[-1] = before[-1]
    return {
        (GATE_LENS, "gate_logit"): logits,
        (GATE_LENS, "gate_probability"): probability,
        (GATE_LENS, "exit_probability"): leaves,
    }
