"""Makes tests/data/torch/: attention and its gradients as PyTorch computes them, in float64.

    python3 -m venv /tmp/torch && /tmp/torch/bin/pip install torch numpy
    /tmp/torch/bin/python tests/data/make_torch_fixtures.py tests/data/torch

A folder for each set of inputs holds q, k, v and dout as float16: multiples of 1/8 in [-2, 2), which
every dtype holds exactly. A folder in it for each mask holds what PyTorch makes of them: o, dq, dk and
dv of torch.nn.functional.scaled_dot_product_attention under autograd, and lse by torch.logsumexp;
computed in float64 on the CPU, saved as float32.

PyTorch's is_causal=True is aligned to the top left: row i sees keys 0 … i. The course's --causal is
aligned to the bottom right, as FlashAttention's is (torch.nn.attention.bias.causal_lower_right). They
agree where seqlen_q = seqlen_k. So each mask is built here explicitly, as a matrix of booleans, and
compared with PyTorch's own where it has one.
"""

import pathlib
import sys

import numpy
import torch
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

# name: (batch, seqlen_q, seqlen_k, heads, kv_heads, head_dim)
INPUTS = {
    "more_keys": (1, 20, 70, 4, 2, 16),
    "more_queries": (1, 70, 20, 2, 1, 16),
    "square": (2, 32, 32, 2, 2, 8),
}


def window(queries, keys, left, right):
    """Row i sees j when i + keys - queries - left <= j <= i + keys - queries + right; None: no limit."""
    distance = torch.arange(keys)[None, :] - (torch.arange(queries)[:, None] + keys - queries)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if left is not None:
        seen &= distance >= -left
    if right is not None:
        seen &= distance <= right
    return seen


# name: (the inputs, the mask's window, the softcap); tests/chapters/test_torch.c has the options.
CASES = {
    "none": ("more_keys", (None, None), 0),
    "causal": ("more_keys", (None, 0), 0),
    "window": ("more_keys", (9, 3), 0),
    "causal_bottom_right": ("more_queries", (None, 0), 0),
    "causal_top_left": ("more_queries", (None, 50), 0),
    "causal_square": ("square", (None, 0), 0),
    "softcap": ("square", (None, None), 2.0),
}


def make_inputs(name):
    batch, queries, keys, heads, kv_heads, head_dim = INPUTS[name]
    torch.manual_seed(sorted(INPUTS).index(name))
    shapes = {"q": (queries, heads), "k": (keys, kv_heads), "v": (keys, kv_heads), "dout": (queries, heads)}
    return {tensor: torch.randint(-16, 16, (batch, *shape, head_dim)).double() / 8
            for tensor, shape in shapes.items()}


def attend(inputs, seen, softcap):
    """o, lse, dq, dk, dv. Rows that see no key: o = 0, lse = -inf."""
    q, k, v = (inputs[name].clone().requires_grad_() for name in "qkv")
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    group = q.shape[2] // k.shape[2]
    keys, values = (x.repeat_interleave(group, dim=1) for x in heads_first[1:])
    scores = heads_first[0] @ keys.transpose(2, 3) / q.shape[3] ** 0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~seen, float("-inf"))
    some = seen.any(dim=1)[:, None]
    # By the definition: matmul and softmax, with rows of no key taken out before the softmax.
    weights = torch.softmax(scores.masked_fill(~some, 0), dim=3).masked_fill(~some, 0)
    defined = weights @ values
    lse = torch.logsumexp(scores.detach(), dim=3)
    o = defined
    if not softcap:  # which scaled_dot_product_attention doesn't have
        o = scaled_dot_product_attention(*heads_first, attn_mask=seen, enable_gqa=True)
        o = o.masked_fill(~some, 0)
        assert torch.allclose(o, defined, atol=1e-12), "PyTorch's attention and the definition differ"
    dout = inputs["dout"].transpose(1, 2)
    gradients = torch.autograd.grad(o, (q, k, v), dout, retain_graph=True)
    for one, other in zip(gradients, torch.autograd.grad(defined, (q, k, v), dout)):
        assert torch.allclose(one, other, atol=1e-12), "the gradients differ"
    return dict(zip(("o", "lse", "dq", "dk", "dv"), (o.transpose(1, 2), lse, *gradients)))


def check_masks():
    """The masks that PyTorch has, too, are the same: is_causal from the top left, the other from the right."""
    for queries, keys in ((20, 70), (70, 20), (32, 32)):
        q, k, v = (torch.rand(1, 1, n, 8, dtype=torch.float64) for n in (queries, keys, keys))
        top_left = scaled_dot_product_attention(q, k, v, is_causal=True)
        ours = scaled_dot_product_attention(q, k, v, attn_mask=window(queries, keys, None, queries - keys))
        assert torch.allclose(top_left, ours, atol=1e-12)
        if queries <= keys:  # beyond, rows see no key, and PyTorch's variants differ in what they give
            bottom_right = scaled_dot_product_attention(q, k, v, attn_mask=causal_lower_right(queries, keys))
            ours = scaled_dot_product_attention(q, k, v, attn_mask=window(queries, keys, None, 0))
            assert torch.allclose(bottom_right, ours, atol=1e-12)


def save(folder, tensors, dtype):
    folder.mkdir(parents=True, exist_ok=True)
    for name, tensor in tensors.items():
        array = tensor.detach().contiguous().numpy()
        numpy.save(folder / f"{name}.npy", numpy.ascontiguousarray(array.astype(dtype)))


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(f"PyTorch {torch.__version__}")
    check_masks()
    out = pathlib.Path(sys.argv[1])
    for name, (inputs_name, sides, softcap) in CASES.items():
        inputs = make_inputs(inputs_name)
        _, queries, keys, *_ = INPUTS[inputs_name]
        save(out / inputs_name, inputs, "<f2")
        save(out / inputs_name / name, attend(inputs, window(queries, keys, *sides), softcap), "<f4")
        print(f"{inputs_name}/{name}")


if __name__ == "__main__":
    main()
