// Products, softmax, layer norm and pointwise functions of oneDNN. Cases on stdin, answers on stdout (peer.h). Threads:
// OMP_NUM_THREADS. g++ -O3 -std=c++20 -I ROOT onednn_kernels.cpp -ldnnl -o onednn_kernels && echo "gemm 1024 1024 1024
// f32 kn" | OMP_NUM_THREADS=1 ./onednn_kernels
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "bench/peers/kernels/peer.h"

using namespace tutti::bench;
using namespace tutti::bench::peers;
using dnnl::memory;
using Arguments = std::unordered_map<int, memory>;

static dnnl::engine& engine() {
  static dnnl::engine one(dnnl::engine::kind::cpu, 0);
  return one;
}

static memory::desc dense(memory::dims sizes, memory::data_type dtype = memory::data_type::f32) {
  return {sizes, dtype, sizes.size() == 1 ? memory::format_tag::a : memory::format_tag::ab};
}

template <class T>
static memory over(const memory::desc& desc, const Elements<T>& elements) {
  return memory(desc, engine(), elements.data());
}

// What describes a primitive: since oneDNN 3 the arguments of the operation, before it an object of its own in front of
// the engine.
template <class Primitive, class... Words>
static typename Primitive::primitive_desc describe(const Words&... words) {
#if DNNL_VERSION_MAJOR >= 3
  return {engine(), words...};
#else
  return {typename Primitive::desc(words...), engine()};
#endif
}

#if DNNL_VERSION_MAJOR >= 3
using Softmax = dnnl::softmax_forward;
#else
using Softmax = dnnl::softmax_v2_forward;
#endif

template <class Descriptor>
static std::pair<Timing, std::string> time_of(const Descriptor& descriptor, const dnnl::primitive& primitive,
                                              const Arguments& arguments) {
  dnnl::stream stream(engine());
  return {measure([&] {
            primitive.execute(stream, arguments);
            stream.wait();
          }),
          descriptor.impl_info_str()};
}

template <class T, class Sum>
static Answer product(const Case& c, memory::data_type type, memory::data_type sum_type) {
  const long m = c.sizes[0], n = c.sizes[1], k = c.sizes[2];
  const Elements<T> a = random_elements<T>(m * k, 1), b = random_elements<T>(k * n, 2);
  const Elements<Sum> y(m * n);
  const memory::desc given({k, n}, type, c.layout == "kn" ? memory::format_tag::ab : memory::format_tag::ba);
  const memory::desc wanted({k, n}, type, memory::format_tag::any), src = dense({m, k}, type),
                                                                    dst = dense({m, n}, sum_type);
  const auto descriptor = describe<dnnl::matmul>(src, c.layout == "packed" ? wanted : given, dst);
  memory weight = over(given, b);
  if (c.layout == "packed") {
    const memory packed(descriptor.weights_desc(), engine());
    dnnl::stream stream(engine());
    dnnl::reorder(weight, packed).execute(stream, weight, const_cast<memory&>(packed));
    stream.wait();
    weight = packed;
  }
  const auto [time, kernel] =
      time_of(descriptor, dnnl::matmul(descriptor),
              {{DNNL_ARG_SRC, over(src, a)}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, over(dst, y)}});
  return {time, product_error(c, a, b, y), kernel};
}

static Answer softmax(const Case& c) {
  const Elements<float> x = random_elements<float>(c.count(), 1), y(c.count());
  const long columns = c.sizes[1];
  const memory::desc desc = dense({c.sizes[0], columns});
  const auto descriptor =
      describe<Softmax>(dnnl::prop_kind::forward_inference, dnnl::algorithm::softmax_accurate, desc, desc, 1);
  const auto [time, kernel] =
      time_of(descriptor, Softmax(descriptor), {{DNNL_ARG_SRC, over(desc, x)}, {DNNL_ARG_DST, over(desc, y)}});
  const auto expected = [&](long i) { return softmax_of_row(x.data() + i / columns * columns, columns, i % columns); };
  return {time, pointwise_error(y, expected, 0), kernel};
}

static Answer layer_norm(const Case& c) {
  const Elements<float> x = random_elements<float>(c.count(), 1), w = random_elements<float>(c.sizes[1], 2),
                        b = random_elements<float>(c.sizes[1], 3), y(c.count());
  const long columns = c.sizes[1];
  const memory::desc desc = dense({c.sizes[0], columns}), row = dense({columns});
  using dnnl::normalization_flags;
  const auto flags = normalization_flags::use_scale | normalization_flags::use_shift;
#if DNNL_VERSION_MAJOR >= 3
  const auto descriptor =
      describe<dnnl::layer_normalization_forward>(dnnl::prop_kind::forward_inference, desc, desc, 1e-5f, flags);
#else
  const auto descriptor =
      describe<dnnl::layer_normalization_forward>(dnnl::prop_kind::forward_inference, desc, 1e-5f, flags);
#endif
  const auto [time, kernel] = time_of(descriptor, dnnl::layer_normalization_forward(descriptor),
                                      {{DNNL_ARG_SRC, over(desc, x)},
                                       {DNNL_ARG_SCALE, over(row, w)},
                                       {DNNL_ARG_SHIFT, over(row, b)},
                                       {DNNL_ARG_DST, over(desc, y)}});
  const auto expected = [&](long i) {
    return normed_of_row(x.data() + i / columns * columns, columns, i % columns) * w.data()[i % columns] +
           b.data()[i % columns];
  };
  return {time, pointwise_error(y, expected), kernel};
}

static Answer exponential(const Case& c) {
  const Elements<float> x = random_elements<float>(c.count(), 1), y(c.count());
  const memory::desc desc = dense({c.count()});
#if DNNL_VERSION_MAJOR >= 3
  const auto descriptor = describe<dnnl::eltwise_forward>(dnnl::prop_kind::forward_inference,
                                                          dnnl::algorithm::eltwise_exp, desc, desc, 0.0f, 0.0f);
#else
  const auto descriptor = describe<dnnl::eltwise_forward>(dnnl::prop_kind::forward_inference,
                                                          dnnl::algorithm::eltwise_exp, desc, 0.0f, 0.0f);
#endif
  const auto [time, kernel] = time_of(descriptor, dnnl::eltwise_forward(descriptor),
                                      {{DNNL_ARG_SRC, over(desc, x)}, {DNNL_ARG_DST, over(desc, y)}});
  return {time, pointwise_error(y, [&](long i) { return std::exp(static_cast<double>(x.data()[i])); }, 0), kernel};
}

// add: a + b. chain: gelu(a * b + c) as one primitive, the sum and the gelu appended to the product.
static Answer binary(const Case& c, bool chain) {
  const Elements<float> x = random_elements<float>(c.count(), 1), y = random_elements<float>(c.count(), 2),
                        z = random_elements<float>(c.count(), 3), out(c.count());
  const memory::desc desc = dense({c.count()});
  dnnl::post_ops after;
  if (chain) {
    after.append_binary(dnnl::algorithm::binary_add, desc);
#if DNNL_VERSION_MAJOR >= 3
    after.append_eltwise(dnnl::algorithm::eltwise_gelu_tanh, 0, 0);
#else
    after.append_eltwise(1, dnnl::algorithm::eltwise_gelu_tanh, 0, 0);
#endif
  }
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(after);
  const dnnl::algorithm algorithm = chain ? dnnl::algorithm::binary_mul : dnnl::algorithm::binary_add;
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::binary::primitive_desc descriptor(engine(), algorithm, desc, desc, desc, attributes);
#else
  const dnnl::binary::primitive_desc descriptor({algorithm, desc, desc, desc}, attributes, engine());
#endif
  Arguments arguments{
      {DNNL_ARG_SRC_0, over(desc, x)}, {DNNL_ARG_SRC_1, over(desc, y)}, {DNNL_ARG_DST, over(desc, out)}};
  if (chain) arguments.insert({DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, over(desc, z)});
  const auto [time, kernel] = time_of(descriptor, dnnl::binary(descriptor), arguments);
  const auto expected = [&](long i) {
    const double u = x.data()[i], v = y.data()[i];
    return chain ? gelu_tanh(u * v + z.data()[i]) : u + v;
  };
  return {time, pointwise_error(out, expected), kernel};
}

static std::optional<Answer> run(const Case& c) {
  using type = memory::data_type;
  if (c.op == "gemm" && c.dtype == "f32") return product<float, float>(c, type::f32, type::f32);
  if (c.op == "gemm" && c.dtype == "i8") return product<int8_t, int32_t>(c, type::s8, type::s32);
  if (c.op == "gemm" && c.dtype == "bf16") return product<BFloat16, BFloat16>(c, type::bf16, type::bf16);
  if (c.dtype != "f32") return std::nullopt;
  if (c.op == "softmax") return softmax(c);
  if (c.op == "layer_norm") return layer_norm(c);
  if (c.op == "exp") return exponential(c);
  if (c.op == "add" || c.op == "chain") return binary(c, c.op == "chain");
  return std::nullopt;
}

static std::string isa() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
      return "AVX2";
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2 with VNNI";
    case dnnl::cpu_isa::avx512_core:
      return "AVX-512";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "AVX-512 with VNNI";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "AVX-512 with bf16";
    default:
      return "as the processor has";
  }
}

int main() {
  const dnnl_version_t* v = dnnl::version();
  return serve(std::to_string(v->major) + "." + std::to_string(v->minor) + "." + std::to_string(v->patch), isa(), run);
}
