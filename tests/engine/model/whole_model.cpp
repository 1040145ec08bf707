#include "tests/engine/model/whole_model.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/units.hpp"
#include "engine/model/initialise.hpp"

namespace kintsugi::test {

using kernels::DType;
using kernels::View;

namespace {

DType activation_dtype(Precision precision) {
  return precision == Precision::float32 ? DType::float32 : DType::bfloat16;
}

// The parts of [shard.offset, shard.offset + shard.count) that lie in matrices, from the start of the shard.
std::vector<kernels::DecayRange> decay_ranges(const ModelLayout& layout, const Shard& shard) {
  std::vector<kernels::DecayRange> ranges;
  for (const Parameter& parameter : layout.parameters()) {
    if (parameter.group != shard.group || !parameter.is_matrix) continue;
    const std::int64_t begin = std::max<std::int64_t>(parameter.offset - shard.offset, 0);
    const std::int64_t end = std::min(parameter.offset + parameter.count() - shard.offset, shard.count);
    if (begin < end) ranges.push_back({begin, end});
  }
  return ranges;
}

// (16) bytes, as Ops::adamw writes them: the high half, then the low one.
Digest digest_from(std::span<const std::byte> bytes) {
  Digest digest;
  std::memcpy(&digest.high, bytes.data(), 8);
  std::memcpy(&digest.low, bytes.data() + 8, 8);
  return digest;
}

}  // namespace

WholeModel::WholeModel(kernels::Device& device, const ModelConfig& config, const Options& options)
    : device_(device), layout_(config), options_(options), stream_(device.create_stream()) {
  for (std::uint32_t i = 0; i < layout_.layer_count(); ++i) {
    programs_.push_back(make_layer_program(layout_, LayerId{i}, options.shape, options.precision, device.ops()));
  }
  allocate_state();
  allocate_activations();
}

WholeModel::~WholeModel() {
  synchronize();
}

View WholeModel::allocate(DType dtype, std::int64_t count) {
  if (count == 0) return {{}, dtype, 0};
  Result<std::unique_ptr<kernels::Buffer>> buffer = device_.allocate(static_cast<std::size_t>(count) * size_of(dtype));
  KINTSUGI_ASSERT(buffer.ok());
  buffers_.push_back(std::move(buffer).value());
  return buffers_.back()->as(dtype, 0, count);
}

void WholeModel::allocate_state() {
  for (const ParameterGroup& group : layout_.groups()) {
    state_.push_back({allocate(DType::float32, group.count), allocate(DType::float32, group.count),
                      allocate(DType::float32, group.count)});
    weights_.push_back(allocate(activation_dtype(options_.precision), group.count));
  }
  const std::size_t groups = layout_.groups().size();
  gradients_.assign(static_cast<std::size_t>(options_.lanes), LaneGradients(layout_.layer_count(), GroupViews(groups)));
  for (LaneGradients& lane : gradients_) {
    for (const ParameterGroup& group : layout_.groups()) {
      for (const LayerId use : group.uses) lane[use.value][group.id.value] = allocate(DType::float32, group.count);
    }
  }
  for (const ParameterGroup& group : layout_.groups()) {
    reduced_.push_back(gradients_[0][group.owner.value][group.id.value]);
  }
  const auto shards = static_cast<std::int64_t>(layout_.shards().size());
  digests_ = allocate(DType::byte, shards * 16);
  norms_ = allocate(DType::byte, shards * 8);
}

void WholeModel::allocate_activations() {
  const DType t = activation_dtype(options_.precision);
  const std::int64_t rows = options_.shape.rows();
  const std::int64_t width = layout_.config().width;
  tokens_ = allocate(DType::int32, rows);
  targets_ = allocate(DType::int32, rows);
  loss_ = allocate(DType::float32, 1);
  std::size_t workspace_bytes =
      HeadInference(layout_, options_.shape, options_.precision, device_.ops()).workspace_bytes();
  for (const auto& program : programs_) {
    saved_.push_back(allocate(DType::byte, static_cast<std::int64_t>(program->saved_bytes())));
    workspace_bytes = std::max(workspace_bytes, program->workspace_bytes());
    if (program != programs_.back()) activations_.push_back(allocate(t, rows * width));
  }
  workspace_ = allocate(DType::byte, static_cast<std::int64_t>(workspace_bytes));
  for (View& grad : grads_) grad = allocate(t, rows * width);
}

void WholeModel::publish() {
  for (std::size_t g = 0; g < state_.size(); ++g) {
    if (options_.precision == Precision::float32)
      device_.ops().copy(*stream_, weights_[g], state_[g].master);
    else
      device_.ops().convert(*stream_, weights_[g], state_[g].master);
  }
  synchronize();
}

void WholeModel::set_weights(const std::function<float(const Parameter&, std::int64_t)>& value) {
  for (const Parameter& parameter : layout_.parameters()) {
    std::vector<float> values(static_cast<std::size_t>(parameter.count()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = value(parameter, static_cast<std::int64_t>(i));
    const View place = state_[parameter.group.value].master.slice(parameter.offset, parameter.count());
    device_.copy_to_device(*stream_, place, values.data());
    synchronize();
  }
  publish();
}

void WholeModel::initialise() {
  for (const Shard& shard : layout_.shards()) {
    std::vector<float> values(static_cast<std::size_t>(shard.count));
    initialise_shard(layout_, shard, values);
    device_.copy_to_device(*stream_, state_[shard.group.value].master.slice(shard.offset, shard.count), values.data());
    synchronize();
  }
  publish();
}

void WholeModel::poison() {
  std::vector<View> views{workspace_, grads_[0], grads_[1], loss_};
  views.insert(views.end(), activations_.begin(), activations_.end());
  views.insert(views.end(), saved_.begin(), saved_.end());
  for (const LaneGradients& lane : gradients_) {
    for (const GroupViews& layer : lane) views.insert(views.end(), layer.begin(), layer.end());
  }
  for (View view : views) {
    if (view.dtype == DType::byte) view = {view.data, DType::float32, view.count / 4};
    if (!view.empty()) device_.ops().fill(*stream_, view, std::numeric_limits<float>::quiet_NaN());
  }
}

void WholeModel::load(const Microbatch& microbatch) {
  KINTSUGI_ASSERT(static_cast<std::int64_t>(microbatch.tokens.size()) == options_.shape.rows());
  KINTSUGI_ASSERT(microbatch.targets.size() == microbatch.tokens.size());
  device_.copy_to_device(*stream_, tokens_, microbatch.tokens.data());
  device_.copy_to_device(*stream_, targets_, microbatch.targets.data());
}

void WholeModel::forward() {
  for (std::size_t i = 0; i < activations_.size(); ++i) {
    programs_[i]->forward(*stream_, {.weights = &weights_,
                                     .tokens = tokens_,
                                     .in = i == 0 ? View{} : activations_[i - 1],
                                     .out = activations_[i],
                                     .saved = saved_[i],
                                     .workspace = workspace_});
  }
}

float WholeModel::backward(const LaneGradients& gradients, bool accumulate, float loss_scale) {
  for (std::size_t i = programs_.size(); i-- > 0;) {
    const bool head = i + 1 == programs_.size();
    programs_[i]->backward(*stream_, {.weights = &weights_,
                                      .gradients = &gradients[i],
                                      .accumulate = accumulate,
                                      .tokens = tokens_,
                                      .targets = targets_,
                                      .in = i == 0 ? View{} : activations_[i - 1],
                                      .grad_out = head ? View{} : grads_[(i + 1) % 2],
                                      .grad_in = i == 0 ? View{} : grads_[i % 2],
                                      .saved = saved_[i],
                                      .workspace = workspace_,
                                      .loss = loss_,
                                      .loss_scale = loss_scale});
  }
  return to_host(loss_).front();
}

float WholeModel::run_lane(std::int64_t lane, std::span<const Microbatch> microbatches, float loss_scale) {
  float loss = 0.0f;
  for (const Microbatch& microbatch : microbatches) {
    load(microbatch);
    forward();
    loss += backward(gradients_.at(static_cast<std::size_t>(lane)), &microbatch != &microbatches.front(), loss_scale);
  }
  return loss;
}

float WholeModel::evaluate(const Microbatch& microbatch) {
  load(microbatch);
  forward();
  HeadInference(layout_, options_.shape, options_.precision, device_.ops())
      .loss(*stream_, weights_, activations_.back(), targets_, workspace_, loss_);
  return to_host(loss_).front();
}

void WholeModel::reduce() {
  const std::vector<std::int64_t> one_lane_each(gradients_.size(), 1);
  for (const ParameterGroup& group : layout_.groups()) {
    for (const LayerId use : group.uses) {
      std::vector<View> nodes;
      for (const LaneGradients& lane : gradients_) nodes.push_back(lane[use.value][group.id.value]);
      if (nodes.size() > 1) device_.ops().tree_sum(*stream_, nodes[0], nodes, one_lane_each, options_.lanes);
      const View& reduced = reduced_[group.id.value];
      if (use != group.owner) device_.ops().add(*stream_, reduced, reduced, nodes[0]);
    }
  }
}

double WholeModel::squared_gradient_norm() {
  for (const Shard& shard : layout_.shards()) {
    device_.ops().squared_norm(*stream_, norms_.slice(shard.id.value * std::int64_t{8}, 8),
                               reduced_[shard.group.value].slice(shard.offset, shard.count));
  }
  std::vector<double> norms(layout_.shards().size());
  device_.copy_to_host(*stream_, norms.data(), norms_);
  synchronize();
  double total = 0.0;
  for (const double norm : norms) total += norm;
  return total;
}

std::vector<Digest> WholeModel::update(const kernels::AdamwScalars& scalars) {
  const std::vector<Shard>& shards = layout_.shards();
  std::vector<std::vector<kernels::DecayRange>> decay;
  for (const Shard& shard : shards) decay.push_back(decay_ranges(layout_, shard));
  std::vector<kernels::AdamwArguments> updates;
  for (const Shard& shard : shards) {
    const State& state = state_[shard.group.value];
    updates.push_back({.master = state.master.slice(shard.offset, shard.count),
                       .moment1 = state.moment1.slice(shard.offset, shard.count),
                       .moment2 = state.moment2.slice(shard.offset, shard.count),
                       .gradient = reduced_[shard.group.value].slice(shard.offset, shard.count),
                       .published = weights_[shard.group.value].slice(shard.offset, shard.count),
                       .decay = decay[shard.id.value],
                       .scalars = scalars,
                       .digest = digests_.slice(shard.id.value * std::int64_t{16}, 16)});
  }
  device_.ops().adamw_many(*stream_, updates);
  std::vector<std::byte> bytes(digests_.bytes());
  device_.copy_to_host(*stream_, bytes.data(), digests_);
  synchronize();
  std::vector<Digest> digests;
  for (std::size_t i = 0; i < bytes.size(); i += 16) digests.push_back(digest_from({bytes.data() + i, 16}));
  return digests;
}

void WholeModel::synchronize() {
  const Result<void> done = stream_->synchronize(kNoDeadline);
  KINTSUGI_ASSERT(done.ok());
}

std::vector<float> WholeModel::to_host(const View& view) {
  std::vector<float> values(static_cast<std::size_t>(view.count));
  device_.copy_to_host(*stream_, values.data(), view);
  synchronize();
  return values;
}

std::vector<float> WholeModel::reduced_gradient(GroupId group) {
  return to_host(reduced_.at(group.value));
}

std::vector<float> WholeModel::reduced_gradient(std::string_view parameter) {
  const Parameter& p = layout_.parameter(parameter);
  return to_host(reduced_.at(p.group.value).slice(p.offset, p.count()));
}

std::vector<float> WholeModel::master(GroupId group) {
  return to_host(state_.at(group.value).master);
}

double WholeModel::flops_per_microbatch() const {
  double total = 0.0;
  for (const auto& program : programs_) total += program->forward_flops() + program->backward_flops();
  return total;
}

std::size_t WholeModel::bytes() const {
  std::size_t total = 0;
  for (const auto& buffer : buffers_) total += buffer->view().bytes();
  return total;
}

}  // namespace kintsugi::test
