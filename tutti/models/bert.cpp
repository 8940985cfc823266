#include "tutti/models/bert.h"

#include <array>

#include "tutti/core/error.h"
#include "tutti/io/model_file.h"
#include "tutti/models/published_config.h"
#include "tutti/models/renamed_tensors.h"
#include "tutti/nn/containers.h"
#include "tutti/nn/embedding.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/multi_linear.h"
#include "tutti/nn/norm.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/clamp.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/reduction.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/squeeze.h"
#include "tutti/ops/unary.h"
#include "tutti/ops/where.h"

namespace tutti::models {
namespace {

nn::LinearOptions projection(const BertConfig& c) { return {.init = nn::Init::normal(c.init_std)}; }
nn::EmbeddingOptions table(const BertConfig& c) { return {.init = nn::Init::normal(c.init_std)}; }
nn::LayerNormOptions norm(const BertConfig& c) { return {.eps = c.norm_eps}; }

struct SelfAttention final : nn::Module {
  explicit SelfAttention(const BertConfig& c)
      : query(this, "query", c.dim, c.dim, projection(c)),
        key(this, "key", c.dim, c.dim, projection(c)),
        value(this, "value", c.dim, c.dim, projection(c)),
        heads(c.heads) {}
  Tensor forward(const Tensor& x_BSD, const Tensor& lengths_B) const {
    const auto [q, k, v] = nn::multi_linear(x_BSD, query, key, value);
    const SymInt B = x_BSD.size(0), S = x_BSD.size(1), D = x_BSD.size(2);
    const Shape by_head{B, S, heads, floordiv(D, heads)};
    const Tensor attended = sdpa(reshape(q, by_head), reshape(k, by_head), reshape(v, by_head), {.lengths = lengths_B});
    return reshape(attended, {B, S, D});
  }
  nn::Child<nn::Linear> query, key, value;
  const int64_t heads;
};

// Adds what a layer makes of `x` to x, and normalizes the sum.
struct AddAndNorm final : nn::Module {
  AddAndNorm(const BertConfig& c, int64_t in)
      : dense(this, "dense", in, c.dim, projection(c)), LayerNorm(this, "LayerNorm", c.dim, norm(c)) {}
  Tensor forward(const Tensor& made, const Tensor& x) const { return LayerNorm(add(dense(made), x)); }
  nn::Child<nn::Linear> dense;
  nn::Child<nn::LayerNorm> LayerNorm;
};

struct Attention final : nn::Module {
  explicit Attention(const BertConfig& c) : self(this, "self", c), output(this, "output", c, c.dim) {}
  Tensor forward(const Tensor& x, const Tensor& lengths) const { return output(self(x, lengths), x); }
  nn::Child<SelfAttention> self;
  nn::Child<AddAndNorm> output;
};

struct Intermediate final : nn::Module {
  explicit Intermediate(const BertConfig& c) : dense(this, "dense", c.dim, c.ffn_dim, projection(c)) {}
  Tensor forward(const Tensor& x) const { return gelu(dense(x)); }
  nn::Child<nn::Linear> dense;
};

struct Layer final : nn::Module {
  explicit Layer(const BertConfig& c)
      : attention(this, "attention", c), intermediate(this, "intermediate", c), output(this, "output", c, c.ffn_dim) {}
  Tensor forward(const Tensor& x, const Tensor& lengths) const {
    const Tensor h = attention(x, lengths);
    return output(intermediate(h), h);
  }
  nn::Child<Attention> attention;
  nn::Child<Intermediate> intermediate;
  nn::Child<AddAndNorm> output;
};

// Old files begin names with the class and call the parts of norms gamma and beta; those of other heads are no part.
std::optional<std::string> name_of_published(std::string_view published) {
  std::string name(published.starts_with("bert.") ? published.substr(5) : published);
  if (name.starts_with("pooler.") || name.starts_with("cls.") || name == "embeddings.position_ids") return std::nullopt;
  for (const auto& [old, current] :
       std::array<std::pair<std::string_view, std::string_view>, 2>{{{".gamma", ".weight"}, {".beta", ".bias"}}})
    if (name.ends_with(old)) name.replace(name.size() - old.size(), old.size(), current);
  return name;
}

}  // namespace

struct Bert::Embeddings final : nn::Module {
  explicit Embeddings(const BertConfig& c)
      : word_embeddings(this, "word_embeddings", c.vocab, c.dim, table(c)),
        position_embeddings(this, "position_embeddings", c.max_positions, c.dim, table(c)),
        token_type_embeddings(this, "token_type_embeddings", c.token_types, c.dim, table(c)),
        LayerNorm(this, "LayerNorm", c.dim, norm(c)) {}
  Tensor forward(const Tensor& tokens, const Tensor& types) const {
    const Tensor positions = position_embeddings(arange(0, tokens.size(1), 1, DType::i32));
    return LayerNorm(add(add(word_embeddings(tokens), token_type_embeddings(types)), positions));
  }
  nn::Child<nn::Embedding> word_embeddings, position_embeddings, token_type_embeddings;
  nn::Child<nn::LayerNorm> LayerNorm;
};

struct Bert::Encoder final : nn::Module {
  explicit Encoder(const BertConfig& c) : layer(this, "layer") {
    for (int64_t i = 0; i < c.layers; ++i) layer->add(c);
  }
  Tensor forward(const Tensor& embedded, const Tensor& lengths) const {
    Tensor x = embedded;
    for (const nn::Child<Layer>& one : *layer) x = one(x, lengths);
    return x;
  }
  nn::Child<nn::ModuleList<Layer>> layer;
};

BertConfig read_bert_config(const std::string& path) {
  PublishedConfig file(path);
  const std::optional<JsonValue> type = file.find("model_type");
  if (!type || type->text() != "bert") file.refuse("model_type", type ? type->shown() : "not given", "\"bert\"");
  BertConfig c;
  c.dim = file.take<int64_t>("hidden_size", 768);
  c.layers = file.take<int64_t>("num_hidden_layers", 12);
  c.heads = file.take<int64_t>("num_attention_heads", 12);
  c.ffn_dim = file.take<int64_t>("intermediate_size", 3072);
  c.vocab = file.take<int64_t>("vocab_size", 30522);
  c.max_positions = file.take<int64_t>("max_position_embeddings", 512);
  c.token_types = file.take<int64_t>("type_vocab_size", 2);
  c.norm_eps = file.take<double>("layer_norm_eps", 1e-12);
  file.expect("hidden_act", std::string("gelu"), std::string("gelu"));
  file.expect("position_embedding_type", std::string("absolute"), std::string("absolute"));
  file.expect("is_decoder", false, false);
  file.expect("add_cross_attention", false, false);
  file.check_supported();
  return c;
}

int64_t parameter_count(const BertConfig& c) {
  const int64_t tables = (c.vocab + c.max_positions + c.token_types) * c.dim + 2 * c.dim;
  const int64_t layer = 4 * (c.dim * c.dim + c.dim) + 2 * c.dim * c.ffn_dim + c.ffn_dim + c.dim + 4 * c.dim;
  return tables + c.layers * layer;
}

Bert::Bert(const BertConfig& config) : config_(config) {
  constexpr int64_t most = int64_t{1} << 24, most_layers = 1 << 12;
  TUTTI_CHECK(config.layers <= most_layers, "bert: {} layers; expected 1 to {}", config.layers, most_layers);
  for (const auto& [name, size] : {std::pair{"model dim", config.dim},
                                   {"layers", config.layers},
                                   {"heads", config.heads},
                                   {"hidden features", config.ffn_dim},
                                   {"tokens", config.vocab},
                                   {"positions", config.max_positions},
                                   {"token types", config.token_types}})
    TUTTI_CHECK(size > 0 && size <= most, "bert: {} {}; expected 1 to {}", name, size, most);
  TUTTI_CHECK(config.dim % config.heads == 0, "bert: {} heads do not divide the model dim {}", config.heads,
              config.dim);
  embeddings_ = std::make_unique<nn::Child<Embeddings>>(this, "embeddings", config);
  encoder_ = std::make_unique<nn::Child<Encoder>>(this, "encoder", config);
}

Bert::~Bert() = default;

Tensor Bert::forward(const Tensor& tokens, const Tensor& types, const Tensor& lengths) const {
  TUTTI_CHECK(tokens.ndim() == 2 && tokens.sizes() == types.sizes(),
              "bert: tokens are {} and token types {}; expected both [rows, tokens]", describe(tokens),
              describe(types));
  TUTTI_CHECK(tokens.extent(1) <= config_.max_positions, "bert: rows of {} tokens; the model has {} positions",
              tokens.extent(1), config_.max_positions);
  return (*encoder_)((*embeddings_)(tokens, types), lengths);
}

void load_published_bert(Bert& model, const std::filesystem::path& path, bool freeze) {
  nn::load(model, renamed_tensors(ModelFile(path), name_of_published), {.freeze = freeze});
}

Tensor sentence_embeddings(const Tensor& states, const Tensor& lengths) {
  const SymInt B = states.size(0), S = states.size(1);
  const Tensor is_token = lt(reshape(arange(0, S, 1, DType::i32), {1, S, 1}), reshape(lengths, {B, 1, 1}));
  const Tensor sums = sum(where(is_token, states, Scalar(0.0)), 1);
  const Tensor means = truediv(sums, reshape(cast(lengths, states.dtype()), {B, 1}));
  const Tensor norms = sqrt(sum(mul(means, means), 1, true));
  return truediv(means, clamp(norms, {.min = 1e-12}));
}

}  // namespace tutti::models
