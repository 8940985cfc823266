// Wrappers: tensors that stand for another one, their inside, in which their elements are. A distributed tensor has the
// sizes of the whole and inside the part of this rank.
//
// Ops on a wrapper are computed by the stage of its kind. Code that records or repeats what happens to memory, such as
// compiled functions, deals with insides; autograd deals with the wrappers.
#pragma once

#include <memory>
#include <string>

#include "tutti/tensor/tensor.h"

namespace tutti {

// All about a wrapper but its elements, for code that makes the same again around others. Keeps nothing alive that
// wrappers share, such as the ranks of distributed tensors. Immutable.
class WrapperForm {
 public:
  virtual ~WrapperForm() = default;
  // A wrapper of this form. `copied`: the wrapper of which it is a view that is a copy, undefined where the form is
  // none. UsageError when what wrappers of it share is gone.
  virtual Tensor around(Tensor inside, const Tensor& copied = {}) const = 0;
  // The elements of `t`, a wrapper of this kind and of these sizes, as they are inside one of this form. UsageError for
  // other tensors.
  virtual Tensor elements_of(const Tensor& t) const = 0;
  // The same form for an inside of these sizes, which may differ in the dims that an inside has whole.
  virtual std::shared_ptr<const WrapperForm> for_inside(const Extents& sizes) const = 0;
  // The form of the cotangents of wrappers of this form.
  virtual std::shared_ptr<const WrapperForm> of_cotangent() const = 0;
  // "f32[8, 4]@[S(0)] on mesh(tp=2)"
  virtual std::string description() const = 0;
};

// The extension that makes a tensor a wrapper.
class WrapperExtension : public TensorExtension {
 public:
  virtual const Tensor& inside() const = 0;
  // The form of the wrapper `t` that this belongs to.
  virtual std::shared_ptr<const WrapperForm> form(const Tensor& t) const = 0;
  // Whether the inside of `t`, the wrapper that this belongs to, has dim `dim` whole, in any size: it may be a symbol
  // of a trace.
  virtual bool has_whole(const Tensor& t, int dim) const = 0;
  // Whether `t` has this form, sizes and strides aside, and what it shares with others still exists. Does not allocate.
  virtual bool has(const WrapperForm& form) const = 0;
  // Whether this is a view that is a copy, which must not be read once the tensor that it shows has been written; and
  // whether that is `other`, or is what `other` shows as a copy.
  virtual bool is_copy() const = 0;
  virtual bool is_copy_of(const WrapperExtension& other) const = 0;
};

// The extension of the wrapper `t`; null where `t` is none.
const WrapperExtension* wrapper_of(const Tensor& t);

// The inside of a wrapper; other tensors, undefined ones too, themselves.
inline const Tensor& inside_of(const Tensor& t) {
  const WrapperExtension* wrapper = wrapper_of(t);
  return wrapper == nullptr ? t : wrapper->inside();
}
// The form of a wrapper, or null.
inline std::shared_ptr<const WrapperForm> form_of(const Tensor& t) {
  const WrapperExtension* wrapper = wrapper_of(t);
  return wrapper == nullptr ? nullptr : wrapper->form(t);
}
// A tensor like the one whose form this is; null: `inside` itself, and so is an undefined one.
inline Tensor around(const std::shared_ptr<const WrapperForm>& form, Tensor inside, const Tensor& copied = {}) {
  return form == nullptr || !inside.defined() ? inside : form->around(std::move(inside), copied);
}

}  // namespace tutti
