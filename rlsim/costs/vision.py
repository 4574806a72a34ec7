"""Images in the prompt: the vision encoder in front of the language model, as work of the prefill and of every pass.

An image is `tokens` tokens of the prompt, each merged from several patches (Qwen2-VL: 2 x 2). The encoder multiplies
every patch with all its weights: 2 · parameters · patches FLOPs per image token, at a share of the dense peak.
It is frozen: forward alone in an update, no part of the weight sync.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from rlsim.memory_lengths import image_tokens, sequence_lengths, spec_lengths

if TYPE_CHECKING:
    from rlsim.catalog.profiles import Profile
    from rlsim.sim.surface import Surface
    from rlsim.system import RolloutPart, System


def encoder_flops(profile: Profile) -> float:
    """FLOPs per image token, forward. 675 M parameters and 4 patches: 5.4 GFLOP, 0.38 of a 7B's 14.1."""
    return 2.0 * profile.value("vision_parameters") * profile.value("vision_patches_per_token")


def encoder_seconds(system: System, samples: int) -> float:
    """One forward over the images of so many samples, shared by all trainer GPUs.

    samples · image tokens · FLOPs / (GPUs · peak · efficiency)
    """
    images = image_tokens(system.scenario.workload)
    rate = system.trainer_pool.gpu.peak_flops["bf16"] * system.profile.value("vision_efficiency")
    return samples * images.mean * encoder_flops(system.profile) / (system.trainer.gpus * rate)


def with_images(surface: Surface, system: System, part: RolloutPart) -> Surface:
    """Prompt tokens cost more by the encoder's work on those that are of images, cut over the attention-TP ranks.

    Prefill knows no kinds of tokens: each bears the mean share. Contexts prefilled again bear it too, though an
    engine with a cache of encoder outputs would not pay it.
    """
    work = system.scenario.workload
    if work.images is None:
        return surface
    images = image_tokens(work).mean
    share = images / (spec_lengths(work.prompt_tokens, "prompt_tokens").mean + images)
    rate = part.pool.gpu.peak_flops["bf16"] * system.profile.value("vision_efficiency") * part.layout.attn_tp
    each = share * encoder_flops(system.profile) / rate
    return replace(
        surface,
        prefill_seconds=surface.prefill_seconds + each * surface.prefill_knots,
        notes=(*surface.notes, _note(system, images)),
    )


def _note(system: System, images: float) -> str:
    """What is assumed of the encoder."""
    profile = system.profile
    mean = sequence_lengths(system.scenario.workload).mean
    return (
        f"images: {images:,.0f} of {mean:,.0f} tokens of a mean sample; a frozen vision encoder of "
        f"{profile.value('vision_parameters') / 1e9:.2g} B parameters, "
        f"{profile.value('vision_patches_per_token'):.0f} patches per token"
    )
