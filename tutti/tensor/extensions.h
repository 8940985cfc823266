// Extensions: state that rooms above, and users, attach to a tensor side by side, each under a kind of its own.
//
//   inline const ExtensionKind kScale{"scale"};
//   struct Scale final : TensorExtension { double value = 1.0; };
//   t.extensions().put(kScale, std::make_unique<Scale>());
//   const Scale* scale = t.extensions().find<Scale>(kScale);  // null: it has none
//
// Extensions belong to one tensor: copies of the handle share them, views and results of ops begin without. An alias,
// such as detach() makes, gets those that say so. The caller must exclude concurrent use of one tensor's extensions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace tutti {

// Names a kind of extension; its address is its identity, so it lives as long as the process.
class ExtensionKind {
 public:
  explicit constexpr ExtensionKind(const char* name) : name_(name) {}
  ExtensionKind(const ExtensionKind&) = delete;
  ExtensionKind& operator=(const ExtensionKind&) = delete;
  std::string_view name() const { return name_; }

 private:
  const char* name_;
};

class Tensor;

// Base of all extensions. The virtual functions but the first are for wrappers, tensors whose elements are elsewhere:
// rooms that know nothing of a wrapper's kind ask its extensions.
class TensorExtension {
 public:
  virtual ~TensorExtension() = default;
  // The extension that an alias of the tensor (another tensor with the same elements) receives; null: none.
  virtual std::unique_ptr<TensorExtension> for_alias() const { return nullptr; }
  // The text behind the sizes in descriptions of the tensor; "": nothing.
  virtual std::string description() const { return {}; }
  // The text of the tensor's elements; "": they are read.
  virtual std::string text() const { return {}; }
  // A tensor with the elements of the wrapper `t`, which has one; undefined: they are read.
  virtual Tensor whole(const Tensor& t) const;
  // `plain`, made by the library as an operand beside the wrapper, in the form in which ops take both; undefined: as it
  // is.
  virtual Tensor beside(const Tensor& plain) const;
  // A cotangent of the wrapper, a leaf, in the form in which its gradient is kept; undefined: as it is.
  virtual Tensor arriving(const Tensor& cotangent) const;

 private:
  friend class TensorExtensions;
  const ExtensionKind* kind_ = nullptr;
  std::unique_ptr<TensorExtension> next_;
};

// The extensions of one tensor: a short list, of which most tensors have no entry or one.
class TensorExtensions {
 public:
  TensorExtensions() = default;
  TensorExtensions(const TensorExtensions&) = delete;
  TensorExtensions& operator=(const TensorExtensions&) = delete;

  // The extension of this kind, or null. T is the class that every extension of this kind has.
  template <class T>
  T* find(const ExtensionKind& kind) const {
    for (TensorExtension* e = first_.get(); e != nullptr; e = e->next_.get()) {
      if (e->kind_ == &kind) return static_cast<T*>(e);
    }
    return nullptr;
  }
  // Attaches `extension` in the place of the one of this kind, if there is one.
  TensorExtension& put(const ExtensionKind& kind, std::unique_ptr<TensorExtension> extension);
  // Takes the extension of this kind out; null when there is none.
  std::unique_ptr<TensorExtension> take(const ExtensionKind& kind);
  bool empty() const { return first_ == nullptr; }
  // Calls visit(extension) with each until one returns true.
  template <class Visit>
  bool any(const Visit& visit) const {
    for (const TensorExtension* e = first_.get(); e != nullptr; e = e->next_.get()) {
      if (visit(*e)) return true;
    }
    return false;
  }
  // The kind that was attached last. InternalError when there is none.
  const ExtensionKind& newest() const;
  // Gives `alias` what the extensions leave to an alias.
  void copy_to(TensorExtensions& alias) const;

 private:
  std::unique_ptr<TensorExtension> first_;
};

}  // namespace tutti
