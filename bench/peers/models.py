"""The models that the comparisons train: flavors of tutti/models/qwen3.h, with the names of its fields."""

SHARED = {"tied_embeddings": True, "rope_theta": 1e6, "norm_eps": 1e-6, "init_std": 0.02}
MODELS = {
    "quickstart": dict(SHARED, dim=192, layers=4, heads=6, kv_heads=3, ffn_dim=512, vocab=2048, head_dim=32),
    "quickstart-tp4": dict(SHARED, dim=128, layers=4, heads=8, kv_heads=4, ffn_dim=512, vocab=2048, head_dim=128),
    "debugmodel": dict(SHARED, dim=256, layers=8, heads=16, kv_heads=8, ffn_dim=3072, vocab=2048, head_dim=128),
    "debugmodel_moe": dict(SHARED, dim=256, layers=8, heads=16, kv_heads=8, ffn_dim=768, vocab=2048, head_dim=128, experts=64, active_experts=8),
}
