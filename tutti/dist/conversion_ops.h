// The ops that lead into distributed tensors, out of them and between layouts, which autograd records like any other.
#pragma once

#include "tutti/dist/wrapper.h"
#include "tutti/ops/engine/attr_fields.h"

namespace tutti::dist {

// A spec among attrs.
struct SpecRef {
  const DTensorSpec* spec = nullptr;
};

}  // namespace tutti::dist

namespace tutti {

template <>
struct FieldValue<dist::SpecRef> : PlainFieldValue {
  static void print(const dist::SpecRef& v, std::string& out) {
    out += v.spec == nullptr ? "none" : v.spec->to_string();
  }
  static void parse(FieldReader& reader, dist::SpecRef&) {
    reader.refuse("no layout: that of a distributed tensor belongs to one run of a program");
  }
  static uint64_t hash(const dist::SpecRef& v) { return v.spec == nullptr ? 0 : v.spec->id(); }
  static bool equal(const dist::SpecRef& a, const dist::SpecRef& b) { return a.spec == b.spec; }
};

}  // namespace tutti

namespace tutti::dist {

// The distributed tensor of whose parts `local` is this rank's. Gradient: the part of the cotangent in the layout
// `cotangent`.
Tensor convert_from_local(const Tensor& local, const DTensorSpec& spec, const DTensorSpec& cotangent);
// This rank's part. Gradient: the distributed tensor with the layout `cotangent` of whose parts that of the result's is
// this rank's.
Tensor convert_to_local(const Tensor& t, const DTensorSpec& cotangent);
// The tensor in another layout. Gradient: the cotangent in the layout that the tensor had, or Replicate where it was
// Partial. `is_async`: the last collective of either may be under way when it returns.
Tensor convert_layout(const Tensor& t, const DTensorSpec& wanted, bool is_async = false);

// Runs `call` if it is one of these ops; for the stage.
bool convert(const OpCall& call, std::span<Tensor> outputs);

// The layout of cotangents of a tensor of layout `spec`: Replicate where it is Partial.
const DTensorSpec& cotangent_spec(const DTensorSpec& spec);

}  // namespace tutti::dist
