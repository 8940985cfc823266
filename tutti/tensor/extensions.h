// Extensions: state that rooms above, and users, attach to a tensor side by side, each under a kind of its own.
//
//   inline const ExtensionKind kScale{"scale"};
//   struct Scale final : TensorExtension { double value = 1.0; };
//   t.extensions().put(kScale, std::make_unique<Scale>());
//   const Scale* scale = t.extensions().find<Scale>(kScale);  // null: it has none
//
// Extensions belong to one tensor: copies of the handle share them, views and results of ops begin without. An alias, such as
// detach() makes, gets those that say so. The caller must exclude concurrent use of one tensor's extensions.
#pragma once

#include <memory>
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

// Base of all extensions.
class TensorExtension {
 public:
  virtual ~TensorExtension() = default;
  // The extension that an alias of the tensor (another tensor with the same elements) receives; null: none.
  virtual std::unique_ptr<TensorExtension> for_alias() const { return nullptr; }

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
  // The kind that was attached last. InternalError when there is none.
  const ExtensionKind& newest() const;
  // Gives `alias` what the extensions leave to an alias.
  void copy_to(TensorExtensions& alias) const;

 private:
  std::unique_ptr<TensorExtension> first_;
};

}  // namespace tutti
