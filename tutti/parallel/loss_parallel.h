// Loss parallelism: cross entropy of logits whose classes are divided over ranks, without gathering them.
#pragma once

namespace tutti::parallel {

// From now on, in this process, cross_entropy() of distributed logits that are sharded by class, and
// linear_cross_entropy() of weights that are, exchange three numbers per row and rank in the forward, and nothing but
// the gradient of the input in the backward. Losses and gradients have the bits of one rank. Where classes are not cut
// at borders of the tree over them (numerics contract, N10), or the loss has options that these numbers do not tell
// (label_smoothing, class probabilities, an ignore_index of one's own), logits are gathered, as ever.
// parallelize_module() calls this.
//
// In PyTorch this is the context loss_parallel(), which backward must run in as well; here it belongs to the layout of
// the tensors.
void enable_loss_parallel();

}  // namespace tutti::parallel
