// Prints the hash of every output of every sample of every op: a line "op sample output hash".
#include <cstdio>

#include "tests/contract/support/op_cases.h"

int main() {
  using namespace tutti;  // NOLINT: a program
  for (const OpDef* op : op_table()) {
    for (const Sample& sample : op->samples()) {
      const std::vector<Tensor> outputs = tutti::testing::run_op(*op, sample);
      for (size_t k = 0; k < outputs.size(); ++k) {
        std::puts(
            fmt::format("{} {} {} {:016x}", op->name, sample.name, k, tutti::testing::hash_of(outputs[k])).c_str());
      }
    }
  }
}
