#include "tutti/package/refusals.h"

#include <algorithm>

#include "tutti/deploy/collective_op.h"
#include "tutti/deploy/op_schema.h"
#include "tutti/plan/control_body.h"
#include "tutti/plan/failure.h"

namespace tutti::package_detail {
namespace {

bool is_in_table(const OpDef& op) {
  const auto table = op_table();
  return std::find(table.begin(), table.end(), &op) != table.end();
}

// Whether the text of the attrs says all about them.
bool can_be_written(const graph::Node& node) {
  if (node.attrs.empty()) return true;
  const AttrsType* type = deploy::attrs_type_of(*node.op);
  if (type != node.attrs.type()) return false;
  try {
    return Attrs::from_text(*type, node.attrs.to_string(), node.op->name) == node.attrs;
  } catch (const Error&) {
    return false;
  }
}

// Why packages do not hold a call that keeps its order; "" when they do.
std::string reason_for_ordered(const graph::Node& node, const deploy::BoundGroups& groups) {
  const deploy::CallAttrs* attrs = deploy::collective_attrs(*node.op, node.attrs);
  if (attrs == nullptr) return "it communicates with the program around, which is not packaged yet";
  const std::string& name = *attrs->group.name;
  if (std::any_of(groups.begin(), groups.end(), [&](const deploy::BoundGroup& g) { return g.name == name; })) return "";
  return fmt::format(
      "it communicates with the ranks of group '{}', which PackageOptions::groups does not have; add "
      "comm::rank_group(group) on all of them",
      name);
}

// Why packages do not hold the node; "" when they do.
std::string reason_for(const graph::Node& node, const graph::Graph& graph, const std::vector<bool>& may_write,
                       const deploy::BoundGroups& groups) {
  const OpDef& op = *node.op;
  if (op.ordered) {
    if (std::string reason = reason_for_ordered(node, groups); !reason.empty()) return reason;
  }
  if (!is_in_table(op))
    return "it is an op of the user that is not in the op table; add it with join_op_table(), in the programs that "
           "open "
           "the package as well";
  if (!node.keys.empty()) return "it draws random numbers, which is not packaged yet; package the model in eval mode";
  if (op.resizes || op.becomes[0] >= 0) return "it gives tensors other memory";
  if (op.keeps_inputs) return "it keeps its operands beyond the call";
  for (const graph::Value& v : node.outputs) {
    const graph::Buffer& buffer = graph.buffers[static_cast<size_t>(v.buffer)];
    if (buffer.kind == graph::Buffer::Kind::given && !may_write[static_cast<size_t>(buffer.source)])
      return "it writes a tensor that the function holds; name the tensor in PackageOptions::state, or return the new "
             "value instead";
  }
  if (!can_be_written(node)) return "its options cannot be written to a file";
  return "";
}

}  // namespace

void refuse_what_does_not_fit(const graph::Graph& graph, const std::vector<bool>& may_write,
                              const deploy::BoundGroups& groups, const std::string& function) {
  for (const graph::Node& node : graph.nodes) {
    if (node.control) {
      for (const graph::ControlBody::Part& part : node.control->parts)
        refuse_what_does_not_fit(part.graph, std::vector<bool>(part.feeds.size(), false), groups, function);
      continue;
    }
    const std::string reason = reason_for(node, graph, may_write, groups);
    if (reason.empty()) continue;
    throw UsageError(fmt::format("package: '{}' cannot be packaged: {}: {}", function,
                                 with_place(node.op->name, node.origin), reason));
  }
}

}  // namespace tutti::package_detail
