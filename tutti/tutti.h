// One header for programs that use Tutti: tensors and ops, autograd, compile(), collectives, distributed
// tensors, modules, optimizers, parallel training, models, and files.
//
// It is for programs and first steps. Nothing in the library or its tests includes it (tests/include_graph_test.py),
// and a program whose build time matters includes the headers of what it calls instead.
#pragma once

// IWYU pragma: begin_exports

// Tensors and the rank that computes with them.
#include "tutti/core/hash.h"
#include "tutti/runtime/allocator.h"
#include "tutti/runtime/numerics.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/trace/profiler.h"
#include "tutti/tensor/device_copy.h"
#include "tutti/tensor/dlpack.h"
#include "tutti/tensor/tensor.h"

// Ops, their gradients, and functions of them that are compiled.
#include "tutti/autograd/anomaly.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/checkpoint.h"
#include "tutti/autograd/function.h"
#include "tutti/deploy/package.h"
#include "tutti/graph/compile.h"
#include "tutti/graph/control.h"
#include "tutti/graph/verify.h"
#include "tutti/ops.h"
#include "tutti/package/package.h"

// Ranks, and tensors that they share or divide.
#include "tutti/comm/coalescing.h"
#include "tutti/comm/collectives_in_c.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/process_group.h"
#include "tutti/comm/rank_group.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/symmetric_buffer.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/device_mesh.h"
#include "tutti/dist/dtensor.h"
#include "tutti/dist/visualize.h"
#include "tutti/symm/symmetric_tensor.h"

// Modules, optimizers, models, and both on several ranks.
#include "tutti/models/bert.h"
#include "tutti/models/decoder.h"
#include "tutti/models/dlrm.h"
#include "tutti/models/family.h"
#include "tutti/models/language_model.h"
#include "tutti/models/published_config.h"
#include "tutti/models/published_model.h"
#include "tutti/nn/activation.h"
#include "tutti/nn/attention.h"
#include "tutti/nn/click_metrics.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/convolution.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/init.h"
#include "tutti/nn/int_nbit_table_batched_embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/loss.h"
#include "tutti/nn/module.h"
#include "tutti/nn/moe.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/norm.h"
#include "tutti/nn/state_dict.h"
#include "tutti/nn/table_batched_embedding.h"
#include "tutti/optim/expert_balance.h"
#include "tutti/optim/grad_norm.h"
#include "tutti/optim/optimizer.h"
#include "tutti/parallel/distribute_module.h"
#include "tutti/parallel/embedding_plan.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/parallel/loss_parallel.h"
#include "tutti/parallel/merged_metric.h"
#include "tutti/parallel/shards.h"
#include "tutti/parallel/tensor_parallel.h"

// Files: weights, tokenizers, corpora, checkpoints.
#include "tutti/core/block_codec.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/bpe_trainer.h"
#include "tutti/io/click_reader.h"
#include "tutti/io/generated_clicks.h"
#include "tutti/io/gguf.h"
#include "tutti/io/gguf_writer.h"
#include "tutti/io/model_file.h"
#include "tutti/io/npy.h"
#include "tutti/io/safetensors.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/io/token_dataset.h"
#include "tutti/io/tokenizer.h"
#include "tutti/train/checkpoint/background_saver.h"
#include "tutti/train/checkpoint/checkpoint.h"
// IWYU pragma: end_exports
