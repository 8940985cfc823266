// Gradients that the forward of linear cross entropy computes while the logits are there.
//
// They belong to the cotangents of the rows' losses that the caller guesses. The backward compares the guess with what
// comes: the same bits give the gradients at hand, others are computed from the start, as without a guess.
#pragma once

#include "tutti/ops/chunked_loss/call.h"

namespace tutti::chunked_loss {

// Inputs of the forward: those of the loss, then the guess [N, 1]. Of the backward: the cotangent of the loss [N, 1]
// and what the forward gave, empty where it was not needed.
enum InForwardInput : size_t { kGuess = kForwardInputs, kInForwardInputs };
enum TakenInput : size_t { kCotangent = kInForwardInputs, kGivenX, kGivenWeight, kGivenBias, kTakenInputs };

// The inputs of kGradients for the cotangent `loss` of the losses alone.
std::vector<Tensor> inputs_of_gradients(const OpCall& call, const Tensor& statistics, const Tensor& loss);
// Memory for what kLoss gives of these inputs, which are without mix.
std::vector<Tensor> rows_of_loss(const OpCall& call);

// Losses of rows [N, 1], then the gradients that the attrs need of x, weight and bias.
void kernel_loss_with_gradients(const OpCall& call, std::span<const Tensor> outputs);
// The gradients that the attrs need.
void kernel_taken_gradients(const OpCall& call, std::span<const Tensor> outputs);

// The same as plain loops in double precision, and calls to compare by.
void reference_loss_with_gradients(const OpCall& call, std::span<const Tensor> outputs);
void reference_taken_gradients(const OpCall& call, std::span<const Tensor> outputs);
std::vector<Sample> samples_with_gradients();
std::vector<Sample> samples_of_taken();

}  // namespace tutti::chunked_loss
