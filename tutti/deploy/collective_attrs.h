// The attrs of functional collectives (comm/functional), which packages and their runtime read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tutti/core/hash.h"
#include "tutti/core/reduce_op.h"
#include "tutti/ops/engine/attrs.h"

namespace tutti::comm {

class ProcessGroup;

namespace functional {

class GroupArgument;

// A group for the attrs of ops, which are plain bytes and may outlive the group: its name, by which
// the registry of the rank that runs the op finds it.
struct GroupRef {
  const std::string* name = nullptr;  // kept once per process and name: see name_of_group()
  int32_t ranks = 1;

  // The functions of the room comm, for programs that have it.
  // A group that nobody registered is given a name, see GroupRegistry::name_for().
  static GroupRef of(const GroupArgument& group);
  // The group of that name on this rank. UsageError, naming the op, when it no longer exists, or was never registered
  // here.
  std::shared_ptr<ProcessGroup> resolve(const char* op) const;
};

// The one copy of `name` in the process, which is never freed.
const std::string* name_of_group(const std::string& name);

}  // namespace functional
}  // namespace tutti::comm

namespace tutti {

template <>
struct FieldValue<comm::functional::GroupRef> : PlainFieldValue {
  using Ref = comm::functional::GroupRef;
  static void print(const Ref& v, std::string& out) {
    out += v.name == nullptr ? "\"\"" : fmt::format("\"{}\" of {}", *v.name, v.ranks);
  }
  static void parse(FieldReader& reader, Ref& v) {
    const std::string name = reader.quoted();
    v = {};
    if (name.empty()) return;
    v.name = comm::functional::name_of_group(name);
    reader.expect("of");
    v.ranks = static_cast<int32_t>(reader.integer(1, INT32_MAX));
  }
  static uint64_t hash(const Ref& v) {
    return mix_hash(v.name == nullptr ? 0 : hash64(*v.name), static_cast<uint64_t>(v.ranks));
  }
  static bool equal(const Ref& a, const Ref& b) { return a.name == b.name && a.ranks == b.ranks; }
};
template <>
struct FieldValue<comm::ReduceOp> : PlainFieldValue {
  static constexpr bool kIsEnum = true;
  static void print(const comm::ReduceOp& v, std::string& out) {
    out += comm::name_of(v.kind());
    if (v.kind() != comm::ReduceKind::premul_sum) return;
    out += ' ';
    FieldValue<double>::print(v.factor(), out);
  }
  static void parse(FieldReader& reader, comm::ReduceOp& v) {
    const auto kind = static_cast<comm::ReduceKind>(reader.one_of(
        comm::kNumReduceKinds, [](size_t i) { return std::string(comm::name_of(static_cast<comm::ReduceKind>(i))); }));
    v = kind == comm::ReduceKind::premul_sum ? comm::ReduceOp::premul_sum(reader.real()) : comm::ReduceOp(kind);
  }
  static uint64_t hash(const comm::ReduceOp& v) {
    return mix_hash(static_cast<uint64_t>(v.kind()), std::bit_cast<uint64_t>(v.factor()));
  }
  static bool equal(const comm::ReduceOp& a, const comm::ReduceOp& b) {
    return a.kind() == b.kind() && FieldValue<double>::equal(a.factor(), b.factor());
  }
};

}  // namespace tutti

namespace tutti::comm::functional {

// Attrs of every functional collective; each uses what it needs.
struct CallAttrs {
  GroupRef group;
  ReduceOp reduce;
  int32_t peer = -1;  // root, source or destination
  uint32_t tag = 0;
  SymInt rows = 0;  // of the output of all_to_all_v_single and all_to_all_v_padded_single
  static constexpr auto fields() {
    return field_list(field::group<&CallAttrs::group>("group"), field::rule<&CallAttrs::reduce>("reduce"),
                      field::number<&CallAttrs::peer>("peer"), field::number<&CallAttrs::tag>("tag"),
                      field::size<&CallAttrs::rows>("rows"));
  }
};

}  // namespace tutti::comm::functional
