// Every op of the table in a package, with the bits of the call: run here, and by a program in C that has neither code
// generator nor cache, which ends with an error where the package lacks a kernel.
#include <gtest/gtest.h>

#include "tests/package/support/c_program.h"
#include "tests/package/support/packaged_cases.h"
#include "tutti/ops/engine/dispatch.h"

namespace tutti {
namespace {

using package_test::for_this_processor;

constexpr size_t kMostSamples = 4;  // of an op

// A call of the op.
struct Call {
  const OpDef& op;
  const Attrs& attrs;
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) const {
    std::vector<Tensor> outputs(static_cast<size_t>(op.num_outputs));
    apply(op, inputs, attrs, outputs);
    return outputs;
  }
};

// It communicates with other ranks, or gives tensors other memory, or keeps its operands beyond the call.
bool is_refused(const OpDef& op) { return op.ordered || op.resizes || op.becomes[0] >= 0 || op.keeps_inputs; }

std::vector<Tensor> copies_of(const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  for (const Tensor& t : tensors) {
    copies.push_back(Tensor::empty(t.extents(), t.dtype()));
    copy_elements(copies.back(), t);
  }
  return copies;
}

TEST(PackagedOps, AllOfTheTableHaveTheBitsOfTheirCalls) {
  const testing::TemporaryFolder folder;
  std::string refused;
  std::vector<std::string> files;
  for (const OpDef* op : op_table()) {
    const bool is_of_tests = std::string_view(op->name).starts_with("test_");  // which the program in C does not have
    if (op->samples == nullptr || is_refused(*op) || is_of_tests) continue;
    const std::vector<Sample> samples = op->samples();
    const size_t step = std::max<size_t>(1, samples.size() / kMostSamples);
    for (size_t i = 0; i < samples.size(); i += step) {
      const Sample& sample = samples[i];
      const Call call{*op, sample.attrs};
      const std::string where = fmt::format("{} {}", op->name, sample.name),
                        path = folder / fmt::format("{}.{}", op->name, i);
      try {
        package(path, call, for_this_processor(op->name), sample.inputs);
      } catch (const UsageError& error) {
        if (op->view != nullptr && std::string(error.what()).starts_with("TUTTI-CAPTURE-036")) break;  // as_strided
        refused += fmt::format("{}: {}\n", where, error.what());
        break;
      } catch (const std::exception& error) {
        ADD_FAILURE() << where << ": " << error.what();
        break;
      }
      files.push_back(path);
      const std::vector<Tensor> live = copies_of(sample.inputs), packaged = copies_of(sample.inputs);
      const std::vector<Tensor> expected = call(live), results = deploy::Package::open(path)->run(packaged);
      ASSERT_EQ(results.size(), expected.size()) << where;
      for (size_t k = 0; k < results.size(); ++k) expect_same_bits(results[k], expected[k], where);
      for (size_t k = 0; k < live.size(); ++k) expect_same_bits(packaged[k], live[k], where);
    }
  }
  EXPECT_EQ(refused, "");
  // A mapped package is enough: what the calls say of the pattern that the program passes does not matter.
  for (const std::string& file : files) {
    const std::string text = package_test::run_command(package_test::kAlone + package_test::kProgram + " " + file).text;
    EXPECT_EQ(text.find("error 8"), std::string::npos) << file << ": " << text;
    EXPECT_NE(text.find("made by Tutti"), std::string::npos) << file << ": " << text;
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace tutti
