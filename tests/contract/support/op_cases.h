// Shared by the contract tests: the ops and their samples, copies of tensors, comparisons and hashes.
//
// Every test is one loop over the samples of one op; a new op is tested by being in the table.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/ops/engine/dispatch.h"

namespace tutti::testing {

std::vector<const OpDef*> all_ops();
std::vector<const OpDef*> ops_where(bool (*condition)(const OpDef&));
inline std::string name_of_op(const ::testing::TestParamInfo<const OpDef*>& info) { return info.param->name; }

// The inputs on fresh storages with their strides dense, or with gaps between the elements.
std::vector<Tensor> dense_copies(std::span<const Tensor> inputs);
std::vector<Tensor> gapped_copies(std::span<const Tensor> inputs);

// The outputs of a run on copies of the inputs (ops that write leave the sample as it is).
std::vector<Tensor> run_op(const OpDef& op, const Sample& sample);
std::vector<Tensor> run_on(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs);
std::vector<Tensor> reference_on(const OpDef& op, std::span<const Tensor> inputs, const Attrs& attrs);

// The device on which the contract is run: the cpu, or with TUTTI_CONTRACT_DEVICE=mock the mock device, which then
// exists and has kernels until the program ends.
Device contract_device();
// The defined ones of the tensors, copied to `device`; the tensors themselves when they are there.
std::vector<Tensor> moved_to(Device device, std::span<const Tensor> tensors);

// "" when the tensors agree: exactly (integers, booleans, a tolerance of 0), else within the op's tolerance, and for a
// narrow float within one unit in the last place. NaN agrees with NaN.
std::string difference(const Tensor& actual, const Tensor& expected, const Tolerance& tolerance);
// "" when sizes, dtype and every bit of every element agree; bits of a NaN count.
std::string bit_difference(const Tensor& actual, const Tensor& expected);
// Of dtype, sizes and elements.
uint64_t hash_of(const Tensor& t);

}  // namespace tutti::testing
