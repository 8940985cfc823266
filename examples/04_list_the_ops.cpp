// Lesson 4: the op table. Everything Tutti knows about an op is data, and everything else loops over it.
// Last line of output: every op has a reference, a sharding rule and samples: yes
#include <cstdio>
#include <string>

#include "tutti/ops/engine/op_def.h"

using namespace tutti;

int main() {
  bool complete = true;
  std::printf("| op | inputs | runs as | gradient | sharding rule of its first sample |\n|---|---|---|---|---|\n");
  for (const OpDef* op : op_table()) {
    complete = complete && op->reference && op->sharding && op->samples && !op->samples().empty();
    if (!complete) break;
    const Sample sample = op->samples().front();
    const OpCall call{*op, sample.inputs, sample.attrs};
    const std::string inputs = op->num_inputs < 0 ? "any" : std::to_string(op->num_inputs);
    const char* runs_as = op->recipe.build ? "compiled loop" : op->view ? "view" : "kernel";
    std::printf("| %s | %s | %s | %s | `%s` |\n", op->name, inputs.c_str(), runs_as,
                op->gradient.vjp ? "yes" : op->gradient.none, op->sharding(call).c_str());
  }
  std::printf("\n%zu ops\n", op_table().size());
  std::printf("every op has a reference, a sharding rule and samples: %s\n", complete ? "yes" : "no");
}
