"""What each family's checkpoints call their tensors, beside what they are called here."""

from __future__ import annotations

from collections.abc import Mapping

# Our parameter names -> theirs, without the model's prefix. `{n}` is the layer, counted from 0.
# A tuple is stacked along the first axis: query, key and value become one matrix product.
Names = Mapping[str, str | tuple[str, ...]]

BERT_LAYER: Names = {
    "qkv": (
        "encoder.layer.{n}.attention.self.query",
        "encoder.layer.{n}.attention.self.key",
        "encoder.layer.{n}.attention.self.value",
    ),
    "out": "encoder.layer.{n}.attention.output.dense",
    "norm1": "encoder.layer.{n}.attention.output.LayerNorm",
    "up": "encoder.layer.{n}.intermediate.dense",
    "down": "encoder.layer.{n}.output.dense",
    "norm2": "encoder.layer.{n}.output.LayerNorm",
}
DISTILBERT_LAYER: Names = {
    "qkv": (
        "transformer.layer.{n}.attention.q_lin",
        "transformer.layer.{n}.attention.k_lin",
        "transformer.layer.{n}.attention.v_lin",
    ),
    "out": "transformer.layer.{n}.attention.out_lin",
    "norm1": "transformer.layer.{n}.sa_layer_norm",
    "up": "transformer.layer.{n}.ffn.lin1",
    "down": "transformer.layer.{n}.ffn.lin2",
    "norm2": "transformer.layer.{n}.output_layer_norm",
}
MPNET_LAYER: Names = {
    **BERT_LAYER,
    "qkv": (
        "encoder.layer.{n}.attention.attn.q",
        "encoder.layer.{n}.attention.attn.k",
        "encoder.layer.{n}.attention.attn.v",
    ),
    "out": "encoder.layer.{n}.attention.attn.o",
    "norm1": "encoder.layer.{n}.attention.LayerNorm",
}
EMBEDDINGS: Names = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "types": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
    "project": "embeddings_project",
    "relative": "encoder.relative_attention_bias",
}
# What checkpoints with a task head on top put before the encoder's names.
PREFIXES: Mapping[str, str] = {
    "bert": "bert.",
    "roberta": "roberta.",
    "xlm-roberta": "roberta.",
    "camembert": "roberta.",
    "electra": "electra.",
    "distilbert": "distilbert.",
    "mpnet": "mpnet.",
}
LAYERS: Mapping[str, Names] = {
    "bert": BERT_LAYER,
    "roberta": BERT_LAYER,
    "xlm-roberta": BERT_LAYER,
    "camembert": BERT_LAYER,
    "electra": BERT_LAYER,
    "distilbert": DISTILBERT_LAYER,
    "mpnet": MPNET_LAYER,
}
