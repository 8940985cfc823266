#include "tutti/plan/control_body.h"

#include "tutti/plan/control_step.h"

namespace tutti::graph {
namespace {

constexpr OpDef kCheck{.name = "check", .num_inputs = 1, .num_outputs = 0, .infer = nullptr};
constexpr OpDef kChoose{.name = "choose", .num_inputs = -1, .infer = nullptr};
constexpr OpDef kRepeat{.name = "repeat", .num_inputs = -1, .infer = nullptr};
constexpr OpDef kWalk{.name = "walk", .num_inputs = -1, .infer = nullptr};

}  // namespace

const OpDef& control_op(ControlBody::Kind kind) {
  static const OpDef* const ops[] = {&kCheck, &kChoose, &kRepeat, &kWalk};
  return *ops[static_cast<size_t>(kind)];
}

Node control_node(std::shared_ptr<const ControlBody> body) {
  Node node{.op = &control_op(body->kind)};
  node.control = std::move(body);
  return node;
}

std::string to_string(const ControlBody& body) {
  if (body.kind == ControlBody::Kind::check) return fmt::format("       \"{}\"\n", body.text);
  std::string text;
  for (const ControlBody::Part& part : body.parts) {
    text += fmt::format("     {}:\n", part.name);
    text += indented(to_string(part.graph), "     ");
  }
  return text;
}

}  // namespace tutti::graph
