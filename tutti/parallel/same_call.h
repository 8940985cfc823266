// A call that all ranks of a mesh make together is compared before it changes anything: fully_shard() with other
// arguments on some ranks would divide parameters differently and give wrong numbers without a word.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/dist/device_mesh.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::parallel {

// Something that every rank says alike: {"parameter 'embed.weight'", "[13, 10] f32, cut on dim 0"}.
struct CallFact {
  std::string what, value;
};

// Calls `facts`, which checks the arguments on this rank and tells what they are, and compares the facts of all ranks
// of `mesh`. Every rank throws when one does: its own UsageError where `facts` threw one, and elsewhere one that names
// the ranks and what they said. Collective, one exchange of 8 bytes a rank over each dim of the mesh where all agree.
// The ranks can go on after an error.
void check_same_call(const dist::DeviceMesh& mesh, std::string_view function,
                     FunctionRef<std::vector<CallFact>()> facts);

}  // namespace tutti::parallel
