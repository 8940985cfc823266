#include "tutti/plan/failure.h"

#include <algorithm>
#include <typeinfo>

#include "tutti/plan/control_body.h"
#include "tutti/plan/recipe_facts.h"

namespace tutti::graph {
namespace {

// Throws it again, with the place, when it is an Error of exactly this kind.
template <class Kind>
void rethrow_as(const Error& error, const std::string& place) {
  if (typeid(error) == typeid(Kind)) throw Kind(fmt::format("{} [{}]", error.what(), place));
}

}  // namespace

Fails fails_of(const OpCall& call, std::span<const Value> outputs) {
  const Recipe& recipe = call.op.recipe;
  const bool has_elements =
      std::any_of(outputs.begin(), outputs.end(), [](const Value& v) { return numel_of(v.sizes) > 0; });
  if (recipe.build != nullptr && recipe.pick == nullptr && has_elements) {
    InlineDims<DType> dtypes;
    for (const Value& v : outputs) dtypes.push_back(v.dtype);
    if (RecipeFacts(call, dtypes).divides()) return Fails::while_writing;
  }
  return call.op.check != nullptr || recipe.pick != nullptr ? Fails::before_writing : Fails::never;
}

Fails fails_of(const ControlBody& body, std::span<const Value> inputs) {
  const bool part_fails = std::any_of(body.parts.begin(), body.parts.end(), [](const ControlBody::Part& part) {
    return std::any_of(part.graph.nodes.begin(), part.graph.nodes.end(),
                       [](const Node& node) { return can_fail(node); });
  });
  const bool may_have_no_part = body.kind == ControlBody::Kind::choose && inputs[0].dtype != DType::boolean;
  return part_fails || may_have_no_part || body.kind == ControlBody::Kind::check ? Fails::before_writing : Fails::never;
}

bool runs_by_itself(const Node& node) { return node.op->kernel != nullptr || node.control != nullptr; }

bool writes_given(const Node& node, const Graph& graph) {
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&](const Value& v) {
    return graph.buffers[static_cast<size_t>(v.buffer)].kind == Buffer::Kind::given;
  });
}

std::string with_place(const char* op, const Origin& origin) {
  const std::string line = origin.site ? user_line(*origin.site) : "";
  const std::string text =
      origin.phase == TracePhase::backward ? fmt::format("{}, in the backward of the op called", op) : std::string(op);
  if (!line.empty()) return fmt::format("{} at {}", text, line);
  const bool has_module = origin.place != nullptr && !origin.place->module_path.empty();
  return has_module ? fmt::format("{} in module {}", text, origin.place->module_path) : op;
}

void rethrow_with_place(const char* op, const Origin& origin) {
  try {
    throw;
  } catch (const IntegerDivideByZero&) {
    throw IntegerDivideByZero(with_place(op, origin));
  } catch (const Error& error) {
    const std::string place = with_place(op, origin);
    rethrow_as<UsageError>(error, place);
    rethrow_as<EnvironmentError>(error, place);
    rethrow_as<InternalError>(error, place);
    throw;
  }
}

}  // namespace tutti::graph
