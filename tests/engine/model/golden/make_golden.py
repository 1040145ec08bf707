#!/usr/bin/env python3
"""Writes the golden values of golden_test.cpp: what Hugging Face's GPT2LMHeadModel and LlamaForCausalLM compute.

The models are built from a configuration, in float64, on fixed tokens; nothing is downloaded. Weights come from a
closed formula in (parameter name, element in Hugging Face's order), exact in float32, which golden.hpp computes too:
so names, shapes and orientation of every parameter are part of the comparison.

Made with Debian 12's python3-torch (1.13.1) and `pip install transformers==4.35.2`. Run it in this folder.
"""

import json

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

OPTIMIZER = {"learning_rate": 3e-3, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip": 1.0}
STEPS = 10
SAMPLES = 5  # gradient elements recorded of each parameter
MODELS = {
    "gpt2": dict(family="gpt2", layers=2, width=48, heads=3, kv_heads=3, hidden=192, context=80, vocabulary=101,
                 tied=True, norm_epsilon=1e-5, rope_theta=10000.0, sequences=2, length=77),
    "llama": dict(family="llama", layers=3, width=64, heads=4, kv_heads=2, hidden=112, context=80, vocabulary=131,
                  tied=False, norm_epsilon=1e-5, rope_theta=10000.0, sequences=2, length=77),
    "llama_tied": dict(family="llama", layers=2, width=48, heads=3, kv_heads=1, hidden=80, context=48, vocabulary=61,
                       tied=True, norm_epsilon=1e-6, rope_theta=500000.0, sequences=3, length=33),
}


def bits(name, count):
    """Element i: splitmix64 (Steele, Lea, Flood 2014) at position i of the sequence seeded by FNV-1a 64 of the name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def weight(name, shape):
    """Matrices: uniform in [-1/4, 1/4); vectors [-1/8, 1/8), and 1 more for the weights of norms. 24 bits or fewer."""
    count = int(np.prod(shape))
    uniform = (bits(name, count) >> np.uint64(42)).astype(np.float64) * 2.0**-22 - 0.5
    if len(shape) == 2:
        return (uniform * 0.5).reshape(shape)
    return uniform * 0.25 + (1.0 if name.endswith("weight") else 0.0)


def build(c):
    if c["family"] == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(
            vocab_size=c["vocabulary"], n_positions=c["context"], n_embd=c["width"], n_layer=c["layers"],
            n_head=c["heads"], n_inner=c["hidden"], layer_norm_epsilon=c["norm_epsilon"], activation_function="gelu_new",
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=c["tied"], bos_token_id=0,
            eos_token_id=0))
    else:
        model = LlamaForCausalLM(LlamaConfig(
            vocab_size=c["vocabulary"], max_position_embeddings=c["context"], hidden_size=c["width"],
            num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"],
            intermediate_size=c["hidden"], rms_norm_eps=c["norm_epsilon"], rope_theta=c["rope_theta"], hidden_act="silu",
            tie_word_embeddings=c["tied"]))
    model.train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # a tied parameter once, under the embedding's name
            parameter.copy_(torch.from_numpy(weight(name, tuple(parameter.shape))))
    return model


def mean_loss(model, inputs, targets):
    logits = model(inputs).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def gradients_of(model):
    records = []
    for name, parameter in model.named_parameters():
        flat = parameter.grad.reshape(-1)
        places = [i * (flat.numel() - 1) // (SAMPLES - 1) for i in range(SAMPLES)]
        records.append({"name": name, "shape": list(parameter.shape), "norm": flat.norm().item(),
                        "samples": [[i, flat[i].item()] for i in places]})
    return records


def train(model, inputs, targets):
    """AdamW with decay on matrices only, gradients scaled by min(1, clip / global norm)."""
    o = OPTIMIZER
    groups = [{"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": o["weight_decay"]},
              {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=o["learning_rate"], betas=(o["beta1"], o["beta2"]), eps=o["epsilon"])
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = mean_loss(model, inputs, targets)
        loss.backward()
        norm = torch.sqrt(sum((p.grad ** 2).sum() for p in model.parameters())).item()
        for p in model.parameters():
            p.grad *= min(1.0, o["clip"] / norm)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms


def greedy(model, prompt, count, context):
    sequence = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            sequence.append(model(torch.tensor([sequence[-context:]])).logits[0, -1].argmax().item())
    return sequence[len(prompt):]


def main():
    torch.set_default_dtype(torch.float64)
    golden = {"optimizer": OPTIMIZER, "models": {}}
    for name, c in MODELS.items():
        model = build(c)
        row = c["length"] + 1
        tokens = (bits("tokens", c["sequences"] * row) % np.uint64(c["vocabulary"])).astype(np.int64)
        tokens = torch.from_numpy(tokens).reshape(c["sequences"], row)
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        prompt = tokens[0, :7].tolist()
        continuation = greedy(model, prompt, c["context"], c["context"])  # the window slides at the end
        loss = mean_loss(model, inputs, targets)
        loss.backward()
        record = {"config": c, "loss": loss.item(), "gradients": gradients_of(model), "prompt": prompt,
                  "continuation": continuation}
        record["losses"], record["norms"] = train(model, inputs, targets)
        golden["models"][name] = record
        print(name, record["losses"], record["norms"][:3])
    with open("golden.json", "w", encoding="utf-8") as file:
        json.dump(golden, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
