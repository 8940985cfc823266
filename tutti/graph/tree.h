// Arguments and results of compiled functions are flattened into tensors and plain values. A compiled function is
// specialized on the plain values.
//
// Supported types are Tensor, SymInt, RandomKey, numbers, enums, strings, vectors, arrays, optionals, maps, pairs and
// tuples of these. To support a struct, list its fields:
//   template <> struct tutti::graph::Fields<Batch> {
//     static void visit(auto& batch, auto&& visit) { visit(batch.tokens); visit(batch.rows); }
//   };
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/ops/random_key.h"
#include "tutti/runtime/function_ref.h"
#include "tutti/tensor/tensor.h"

namespace tutti::graph {

template <class T>
struct Fields;

// Flattened arguments or results.
struct Leaves {
  std::vector<Tensor> tensors;
  std::vector<int64_t> sizes;  // SymInts
  std::vector<RandomKey> keys;
  std::string plain;  // an encoding of the structure and of all other values, see plain_values.h
};

// Values that replace the tensors, sizes and keys of arguments.
struct StandIns {
  std::span<const Tensor> tensors;
  std::span<const SymInt> sizes = {};  // empty: the original sizes
  std::span<const RandomKey> keys = {};
};

// Runs a function with its arguments' tensors, sizes and keys replaced; returns its result, and the tensors of the
// result in `results`.
using TraceFn = FunctionRef<std::shared_ptr<const void>(const StandIns& arguments, std::vector<Tensor>& results)>;

// The letter that encodes the kind of a number or enum in Leaves::plain.
template <class T>
constexpr char plain_kind() {
  if constexpr (std::is_same_v<T, bool>) return 'b';
  else if constexpr (std::is_floating_point_v<T>) return 'f';
  else if constexpr (std::is_enum_v<T>) return 'e';
  else return std::is_signed_v<T> ? 'i' : 'j';
}

// CaptureError when a traced function returns a RandomKey, because the trace only has a stand-in for it.
void refuse_returned_keys(const Leaves& results);

// The tensors with plain ones in the place of wrappers, which keep a mesh alive; empty: there are none.
std::vector<Tensor> without_wrappers(const std::vector<Tensor>& tensors);

class Flattener {
 public:
  explicit Flattener(Leaves& leaves) : leaves_(leaves) {}

  void operator()(const Tensor& t) {
    leaves_.plain += t.defined() ? 't' : 'u';
    if (t.defined()) leaves_.tensors.push_back(t);
  }
  void operator()(SymInt size) {
    leaves_.plain += 'n';
    leaves_.sizes.push_back(size.value());
  }
  // The key, step and virtual shard may differ from call to call; the other fields are plain values.
  void operator()(const RandomKey& key) {
    leaves_.plain += 'k';
    (*this)(key.first_index), (*this)(key.run_length), (*this)(key.run_stride);
    leaves_.keys.push_back(key);
  }
  void operator()(const std::string& s) { add('s', s.size()), leaves_.plain += s; }
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(const T& value) {
    leaves_.plain += plain_kind<T>();
    leaves_.plain += static_cast<char>(sizeof(T));
    leaves_.plain.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void operator()(const std::vector<T>& list) {
    add('v', list.size());
    for (const T& item : list) (*this)(item);
  }
  template <class T, size_t N>
  void operator()(const std::array<T, N>& list) {
    for (const T& item : list) (*this)(item);
  }
  template <class T>
  void operator()(const std::optional<T>& value) {
    leaves_.plain += value ? 'o' : '-';
    if (value) (*this)(*value);
  }
  template <class K, class V>
  void operator()(const std::map<K, V>& map) {
    add('m', map.size());
    for (const auto& [key, value] : map) (*this)(key), (*this)(value);
  }
  template <class A, class B>
  void operator()(const std::pair<A, B>& pair) {
    (*this)(pair.first), (*this)(pair.second);
  }
  template <class... T>
  void operator()(const std::tuple<T...>& tuple) {
    std::apply([this](const T&... items) { ((*this)(items), ...); }, tuple);
  }
  template <class T>
    requires requires(const T& t, Flattener& f) { Fields<T>::visit(t, f); }
  void operator()(const T& object) {
    Fields<T>::visit(object, *this);
  }

 private:
  void add(char kind, size_t count) {
    leaves_.plain += kind;
    leaves_.plain.append(reinterpret_cast<const char*>(&count), sizeof(count));
  }
  Leaves& leaves_;
};

// Replaces the tensors, sizes and keys in a tree of the same structure by stand-ins.
class Rebuilder {
 public:
  explicit Rebuilder(const StandIns& stand_ins) : of_(stand_ins) {}

  void operator()(Tensor& t) {
    if (t.defined()) t = of_.tensors[next_++];
  }
  void operator()(SymInt& size) {
    if (!of_.sizes.empty()) size = of_.sizes[next_size_++];
  }
  void operator()(RandomKey& key) {
    if (!of_.keys.empty()) key = of_.keys[next_key_++];
  }
  void operator()(std::string&) {}
  template <class T>
    requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void operator()(T&) {}
  template <class T>
  void operator()(std::vector<T>& list) {
    if constexpr (std::is_same_v<T, bool>) return;
    else
      for (T& item : list) (*this)(item);
  }
  template <class T, size_t N>
  void operator()(std::array<T, N>& list) {
    for (T& item : list) (*this)(item);
  }
  template <class T>
  void operator()(std::optional<T>& value) {
    if (value) (*this)(*value);
  }
  template <class K, class V>
  void operator()(std::map<K, V>& map) {
    for (auto& [key, value] : map) (*this)(value);
  }
  template <class A, class B>
  void operator()(std::pair<A, B>& pair) {
    (*this)(pair.first), (*this)(pair.second);
  }
  template <class... T>
  void operator()(std::tuple<T...>& tuple) {
    std::apply([this](T&... items) { ((*this)(items), ...); }, tuple);
  }
  template <class T>
    requires requires(T& t, Rebuilder& r) { Fields<T>::visit(t, r); }
  void operator()(T& object) {
    Fields<T>::visit(object, *this);
  }

 private:
  const StandIns of_;
  size_t next_ = 0, next_size_ = 0, next_key_ = 0;
};

template <class T>
T rebuilt(const T& like, std::span<const Tensor> tensors) {
  T copy = like;
  Rebuilder rebuild({.tensors = tensors});
  rebuild(copy);
  return copy;
}

}  // namespace tutti::graph
