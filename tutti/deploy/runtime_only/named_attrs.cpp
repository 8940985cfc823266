// The runtime knows the attrs of ops by the names of their types.
#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/op_schema.h"
#include "tutti/deploy/runtime_only/collective_ops.h"

namespace tutti::deploy {
namespace {

// Here and not in their own file, which nothing else would take from the static library.
[[maybe_unused]] const bool joined = join_collective_ops();

}  // namespace

const AttrsType* attrs_type_of(const OpDef& op, std::string_view name) {
  return is_collective(op) ? &attrs_type<CallAttrs> : attrs_type_named(name);
}

}  // namespace tutti::deploy
