"""The layouts once more, written with slices, stacks and chunks as the frameworks do it: nothing of rlsim.reshard.

A checkpoint is cut into what one rank holds. Only the facts of the model and the sizes of the layout are shared.
"""

from __future__ import annotations

import torch

from rlsim.architecture import ModelSpec
from rlsim.grids import EngineLayout, TrainLayout

State = dict[str, torch.Tensor]


def pad_rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    return torch.cat([x, torch.zeros((rows - len(x), *x.shape[1:]), dtype=x.dtype)]) if rows > len(x) else x


def part(x: torch.Tensor, t: int, n: int, dim: int) -> torch.Tensor:
    size = x.shape[dim] // n
    return x.narrow(dim, t * size, size).contiguous()


# Megatron-Core ----------


def fused_qkv(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, groups: int) -> torch.Tensor:
    """[q heads of the group | k | v] of group after group."""
    blocks = [torch.cat([a, b, c]) for a, b, c in zip(q.chunk(groups), k.chunk(groups), v.chunk(groups), strict=True)]
    return torch.cat(blocks)


def fc1(gate: torch.Tensor, up: torch.Tensor, t: int, n: int) -> torch.Tensor:
    return torch.cat([part(gate, t, n, 0), part(up, t, n, 0)])


def megatron(hf: State, m: ModelSpec, layout: TrainLayout, rank: int) -> State:
    T, per_stage = layout.tp, layout.gpus // layout.pp
    stage, within = divmod(rank, per_stage)
    t, etp, ep = within % T, within % layout.etp, within // layout.etp % layout.ep
    state: State = {}
    padded = -(-m.vocab // (128 * T)) * 128 * T
    if stage == 0 or (m.tied and stage == layout.pp - 1):
        state["embedding.word_embeddings.weight"] = part(pad_rows(hf["model.embed_tokens.weight"], padded), t, T, 0)
    if stage == layout.pp - 1:
        state["decoder.final_layernorm.weight"] = hf["model.norm.weight"]
        if not m.tied:
            state["output_layer.weight"] = part(pad_rows(hf["lm_head.weight"], padded), t, T, 0)
    size = m.num_layers // (layout.pp * layout.vpp)
    for chunk in range(layout.vpp):
        first = chunk * (m.num_layers // layout.vpp) + stage * size
        for i in range(size):
            name = f"model{chunk}." if layout.vpp > 1 else ""
            layer = _megatron_layer(hf, m, layout, first + i, t, etp, ep)
            state |= {f"{name}decoder.layers.{i}.{key}": value for key, value in layer.items()}
    return state


def _megatron_layer(hf: State, m: ModelSpec, layout: TrainLayout, layer: int, t: int, etp: int, ep: int) -> State:
    T, a, moe = layout.tp, m.attention, m.layers[layer].moe
    p = f"model.layers.{layer}."
    state: State = {}

    def get(name: str) -> torch.Tensor:
        return hf[p + name]

    if a.kind == "gqa":
        for kind in ("weight", "bias"):
            if p + f"self_attn.q_proj.{kind}" in hf:
                whole = fused_qkv(*(get(f"self_attn.{x}_proj.{kind}") for x in "qkv"), a.kv_heads)
                state[f"self_attention.linear_qkv.{kind}"] = part(whole, t, T, 0)
        state["self_attention.linear_qkv.layer_norm_weight"] = get("input_layernorm.weight")
        if a.qk_norm:
            state["self_attention.q_layernorm.weight"] = get("self_attn.q_norm.weight")
            state["self_attention.k_layernorm.weight"] = get("self_attn.k_norm.weight")
        if a.sinks:
            state["self_attention.core_attention.softmax_offset"] = part(get("self_attn.sinks"), t, T, 0)
    else:
        state["self_attention.linear_q_down_proj.weight"] = get("self_attn.q_a_proj.weight")
        state["self_attention.linear_kv_down_proj.weight"] = get("self_attn.kv_a_proj_with_mqa.weight")
        state["self_attention.linear_q_up_proj.weight"] = part(get("self_attn.q_b_proj.weight"), t, T, 0)
        state["self_attention.linear_kv_up_proj.weight"] = part(get("self_attn.kv_b_proj.weight"), t, T, 0)
        state["self_attention.linear_q_up_proj.layer_norm_weight"] = get("self_attn.q_a_layernorm.weight")
        state["self_attention.linear_kv_up_proj.layer_norm_weight"] = get("self_attn.kv_a_layernorm.weight")
        state["input_layernorm.weight"] = get("input_layernorm.weight")
    state["self_attention.linear_proj.weight"] = part(get("self_attn.o_proj.weight"), t, T, 1)
    if a.o_bias:
        state["self_attention.linear_proj.bias"] = get("self_attn.o_proj.bias")
    norm = "pre_mlp_layernorm.weight" if moe else "mlp.linear_fc1.layer_norm_weight"
    state[norm] = get("post_attention_layernorm.weight")
    if not moe:
        state["mlp.linear_fc1.weight"] = fc1(get("mlp.gate_proj.weight"), get("mlp.up_proj.weight"), t, T)
        state["mlp.linear_fc2.weight"] = part(get("mlp.down_proj.weight"), t, T, 1)
        return state
    e = m.experts
    assert e is not None
    router = {"MixtralForCausalLM": "block_sparse_moe.gate", "GptOssForCausalLM": "mlp.router"}
    name = router.get(m.architecture, "mlp.gate")
    state["mlp.router.weight"] = get(f"{name}.weight")
    if p + f"{name}.bias" in hf:
        state["mlp.router.bias"] = get(f"{name}.bias")
    if p + f"{name}.e_score_correction_bias" in hf:
        state["mlp.router.expert_bias"] = get(f"{name}.e_score_correction_bias")
    shared = "mlp.shared_expert" if e.shared_gate else "mlp.shared_experts"
    if e.shared_intermediate:
        gate, up = get(f"{shared}.gate_proj.weight"), get(f"{shared}.up_proj.weight")
        state["mlp.shared_experts.linear_fc1.weight"] = fc1(gate, up, t, T)
        state["mlp.shared_experts.linear_fc2.weight"] = part(get(f"{shared}.down_proj.weight"), t, T, 1)
    if e.shared_gate:
        state["mlp.shared_experts.gate_weight"] = get("mlp.shared_expert_gate.weight")
    for i in range(e.count // layout.ep):
        j = ep * (e.count // layout.ep) + i
        if m.architecture == "GptOssForCausalLM":
            state[f"mlp.experts.linear_fc1.weight{i}"] = part(get("mlp.experts.gate_up_proj")[j].T, etp, layout.etp, 0)
            state[f"mlp.experts.linear_fc2.weight{i}"] = part(get("mlp.experts.down_proj")[j].T, etp, layout.etp, 1)
            bias = part(get("mlp.experts.gate_up_proj_bias")[j], etp, layout.etp, 0)
            state[f"mlp.experts.linear_fc1.bias{i}"] = bias
            state[f"mlp.experts.linear_fc2.bias{i}"] = get("mlp.experts.down_proj_bias")[j]
            continue
        gate, up, down = expert(hf, p, m, j)
        state[f"mlp.experts.linear_fc1.weight{i}"] = fc1(gate, up, etp, layout.etp)
        state[f"mlp.experts.linear_fc2.weight{i}"] = part(down, etp, layout.etp, 1)
    return state


def expert(hf: State, prefix: str, m: ModelSpec, j: int) -> tuple[torch.Tensor, ...]:
    if m.architecture == "MixtralForCausalLM":
        return tuple(hf[f"{prefix}block_sparse_moe.experts.{j}.{x}.weight"] for x in ("w1", "w3", "w2"))
    return tuple(hf[f"{prefix}mlp.experts.{j}.{x}_proj.weight"] for x in ("gate", "up", "down"))


# FSDP2 and ZeRO-3 ----------


def fsdp2(hf: State, layout: TrainLayout, rank: int) -> State:
    """torch.chunk along dim 0, as fully_shard does; tp = 1."""
    found = {}
    for name, x in hf.items():
        chunks = x.chunk(layout.shard, dim=0)
        found[name] = chunks[rank % layout.shard] if rank % layout.shard < len(chunks) else x[:0]
    return {name: x for name, x in found.items() if x.numel()}


def zero3(hf: State, layout: TrainLayout, rank: int) -> State:
    """Flattened, padded to N equal parts, fused experts tensor by tensor as rlsim lists them."""
    found = {}
    for name, x in hf.items():
        share = -(-x.numel() // layout.shard)
        flat = torch.cat([x.reshape(-1), torch.zeros(share * layout.shard - x.numel(), dtype=x.dtype)])
        mine = flat[rank % layout.shard * share :][:share]
        if rank % layout.shard * share < x.numel():
            found[name] = mine
    return found


# vLLM and SGLang ----------


def engine(hf: State, m: ModelSpec, layout: EngineLayout, rank: int) -> State:
    a, T = m.attention, layout.attn_tp
    width = layout.attn_tp * layout.attn_dp
    stage, within = divmod(rank, width)
    t = within % T
    state: State = {}
    padded = -(-m.vocab // 64) * 64
    if stage == 0 or (m.tied and stage == layout.pp - 1):
        state["model.embed_tokens.weight"] = part(pad_rows(hf["model.embed_tokens.weight"], padded), t, T, 0)
    if stage == layout.pp - 1:
        state["model.norm.weight"] = hf["model.norm.weight"]
        if not m.tied:
            whole = pad_rows(hf["lm_head.weight"], padded)
            state["lm_head.weight"] = part(whole, within % layout.head_tp, layout.head_tp, 0)
    for layer in layout.stages[stage]:
        p = f"model.layers.{layer}."
        found = _engine_attention(hf, p, m, layout, t, a.heads // T)
        found |= _engine_mlp(hf, p, m, layout, layer, within)
        state |= {p + name: x for name, x in found.items()}
    return state


def _engine_attention(hf: State, p: str, m: ModelSpec, layout: EngineLayout, t: int, heads: int) -> State:
    a, T = m.attention, layout.attn_tp
    state: State = {}
    if a.kind == "gqa":
        for kind in ("weight", "bias"):
            if p + f"self_attn.q_proj.{kind}" not in hf:
                continue
            q, k, v = (hf[p + f"self_attn.{x}_proj.{kind}"] for x in "qkv")
            d = a.head_dim
            mine = a.kv_heads // T if a.kv_heads > T else 1
            g = t * mine if a.kv_heads > T else t // (T // a.kv_heads)
            rows = slice(g * d, (g + mine) * d)
            state[f"self_attn.qkv_proj.{kind}"] = torch.cat([q[t * heads * d : (t + 1) * heads * d], k[rows], v[rows]])
    else:
        fused = "fused_qkv_a_proj_with_mqa" if layout.engine == "sglang" else "fused_qkv_a_proj"
        q_a, kv_a = hf[p + "self_attn.q_a_proj.weight"], hf[p + "self_attn.kv_a_proj_with_mqa.weight"]
        state[f"self_attn.{fused}.weight"] = torch.cat([q_a, kv_a])
        for name in ("q_b_proj", "kv_b_proj"):
            state[f"self_attn.{name}.weight"] = part(hf[p + f"self_attn.{name}.weight"], t, T, 0)
    state["self_attn.o_proj.weight"] = part(hf[p + "self_attn.o_proj.weight"], t, T, 1)
    if a.sinks:
        state["self_attn.sinks"] = part(hf[p + "self_attn.sinks"], t, T, 0)
    whole = ("input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_norm.weight",
             "self_attn.k_norm.weight", "self_attn.q_a_layernorm.weight", "self_attn.kv_a_layernorm.weight",
             "self_attn.o_proj.bias")  # fmt: skip
    return state | {name: hf[p + name] for name in whole if p + name in hf}


def _engine_mlp(hf: State, p: str, m: ModelSpec, layout: EngineLayout, layer: int, within: int) -> State:
    t, T = within % layout.attn_tp, layout.attn_tp
    state: State = {}
    for block in ("mlp", "mlp.shared_expert", "mlp.shared_experts"):
        if p + f"{block}.gate_proj.weight" in hf:
            gate, up = hf[p + f"{block}.gate_proj.weight"], hf[p + f"{block}.up_proj.weight"]
            state[f"{block}.gate_up_proj.weight"] = torch.cat([part(gate, t, T, 0), part(up, t, T, 0)])
            state[f"{block}.down_proj.weight"] = part(hf[p + f"{block}.down_proj.weight"], t, T, 1)
    routers = ("block_sparse_moe.gate.weight", "mlp.gate.weight", "mlp.gate.e_score_correction_bias",
               "mlp.router.weight", "mlp.router.bias", "mlp.shared_expert_gate.weight")  # fmt: skip
    state |= {name: hf[p + name] for name in routers if p + name in hf}
    if not m.layers[layer].moe or m.experts is None:
        return state
    e, n = within // layout.moe_tp, layout.moe_tp
    base, more = divmod(m.experts.count, layout.moe_ep)
    first = e * base + min(e, more)
    mine = range(first, first + base + (e < more))
    s = within % n
    block = "block_sparse_moe.experts" if m.architecture == "MixtralForCausalLM" else "mlp.experts"
    if m.architecture == "GptOssForCausalLM":
        x = {name: hf[p + f"mlp.experts.{name}"] for name in ("gate_up_proj", "down_proj")}
        bias = {name: hf[p + f"mlp.experts.{name}_bias"] for name in ("gate_up_proj", "down_proj")}
        state[f"{block}.w13_weight"] = torch.stack([part(x["gate_up_proj"][j].T, s, n, 0) for j in mine])
        state[f"{block}.w2_weight"] = torch.stack([part(x["down_proj"][j].T, s, n, 1) for j in mine])
        state[f"{block}.w13_bias"] = torch.stack([part(bias["gate_up_proj"][j], s, n, 0) for j in mine])
        state[f"{block}.w2_bias"] = torch.stack([bias["down_proj"][j] for j in mine])
        return state
    experts = [expert(hf, p, m, j) for j in mine]
    state[f"{block}.w13_weight"] = torch.stack([torch.cat([part(g, s, n, 0), part(u, s, n, 0)]) for g, u, _ in experts])
    state[f"{block}.w2_weight"] = torch.stack([part(d, s, n, 1) for _, _, d in experts])
    return state
