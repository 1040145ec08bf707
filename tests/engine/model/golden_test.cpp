// Whole models against Hugging Face's in float64 (golden/make_golden.py).
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu/cpu_device.hpp"
#include "tests/engine/model/golden.hpp"

namespace kintsugi::test {
namespace {

// Float32 chains of a few hundred additions, twice over: 1e-6 to 1e-5 relative is usual.
constexpr double kTolerance = 1e-4;

struct Trainer {
  Golden golden;
  std::unique_ptr<kernels::Device> device = kernels::cpu::make_cpu_device(2);
  std::unique_ptr<WholeModel> model;
  Microbatch batch;

  Trainer(const Golden& g, Precision precision) : golden(g), batch(golden_microbatch(g)) {
    model = std::make_unique<WholeModel>(*device, g.config, WholeModel::Options{precision, g.shape, 1});
    model->set_weights(golden_weight);
  }

  // Forward, backward, reduction. The mean loss.
  double differentiate() {
    const auto tokens = static_cast<double>(golden.shape.rows());
    const float loss = model->run_lane(0, std::span(&batch, 1), static_cast<float>(1.0 / tokens));
    model->reduce();
    return loss / tokens;
  }
};

double norm_of(const std::vector<float>& values) {
  double sum = 0.0;
  for (const float v : values) sum += double{v} * double{v};
  return std::sqrt(sum);
}

kernels::AdamwScalars scalars_of(const nlohmann::json& o, std::int64_t step, double gradient_norm) {
  const double t = static_cast<double>(step);
  return {.learning_rate = o.at("learning_rate"),
          .beta1 = o.at("beta1"),
          .beta2 = o.at("beta2"),
          .epsilon = o.at("epsilon"),
          .weight_decay = o.at("weight_decay"),
          .bias_correction1 = static_cast<float>(1.0 - std::pow(o.at("beta1").get<double>(), t)),
          .bias_correction2 = static_cast<float>(1.0 - std::pow(o.at("beta2").get<double>(), t)),
          .clip_scale = static_cast<float>(std::min(1.0, o.at("clip").get<double>() / gradient_norm))};
}

TEST(Golden, every_parameter_has_hugging_faces_name_and_shape) {
  for (const Golden& golden : load_goldens()) {
    const ModelLayout layout(golden.config);
    const nlohmann::json& records = golden.record.at("gradients");
    EXPECT_EQ(layout.parameters().size(), records.size()) << golden.name;
    for (const nlohmann::json& record : records) {
      const Parameter& p = layout.parameter(record.at("name").get<std::string>());
      std::vector<std::int64_t> shape{p.rows};
      if (p.is_matrix) shape.push_back(p.columns);
      if (p.stored_transposed) std::swap(shape[0], shape[1]);
      EXPECT_EQ(shape, record.at("shape").get<std::vector<std::int64_t>>()) << p.name;
    }
  }
}

TEST(Golden, loss_and_gradients_are_hugging_faces) {
  for (const Golden& golden : load_goldens()) {
    Trainer trainer(golden, Precision::float32);
    EXPECT_NEAR(trainer.differentiate(), golden.record.at("loss").get<double>(), kTolerance) << golden.name;
    for (const nlohmann::json& record : golden.record.at("gradients")) {
      const Parameter& p = trainer.model->layout().parameter(record.at("name").get<std::string>());
      const std::vector<float> ours = trainer.model->reduced_gradient(p.name);
      const double norm = record.at("norm");
      EXPECT_NEAR(norm_of(ours) / norm, 1.0, kTolerance) << golden.name << " " << p.name;
      for (std::int64_t i = 0; i < p.count(); ++i) {
        for (const nlohmann::json& sample : record.at("samples")) {
          if (sample.at(0) != hugging_face_element(p, i)) continue;
          EXPECT_NEAR(ours[static_cast<std::size_t>(i)], sample.at(1).get<double>(), kTolerance * norm)
              << golden.name << " " << p.name << " element " << sample.at(0);
        }
      }
    }
  }
}

TEST(Golden, ten_steps_of_clipped_adamw_have_pytorchs_losses) {
  for (const Golden& golden : load_goldens()) {
    Trainer trainer(golden, Precision::float32);
    const std::vector<double> losses = golden.record.at("losses");
    for (std::size_t step = 1; step <= losses.size(); ++step) {
      EXPECT_NEAR(trainer.differentiate(), losses[step - 1], kTolerance) << golden.name << " step " << step;
      const double norm = std::sqrt(trainer.model->squared_gradient_norm());
      EXPECT_NEAR(norm / golden.record.at("norms").at(step - 1).get<double>(), 1.0, 10 * kTolerance) << golden.name;
      trainer.model->update(scalars_of(golden.optimizer, static_cast<std::int64_t>(step), norm));
    }
  }
}

// Bfloat16 keeps 8 bits: each rounding is off by up to 2^-9, and a gradient passes through some dozens of them.
TEST(Golden, bfloat16_gradients_point_where_float32s_do) {
  for (const Golden& golden : load_goldens()) {
    Trainer exact(golden, Precision::float32);
    Trainer rounded(golden, Precision::bfloat16);
    EXPECT_NEAR(rounded.differentiate(), exact.differentiate(), 0.02) << golden.name;
    double product = 0.0, exact_squares = 0.0, rounded_squares = 0.0;
    for (const ParameterGroup& group : exact.model->layout().groups()) {
      const std::vector<float> a = exact.model->reduced_gradient(group.id);
      const std::vector<float> b = rounded.model->reduced_gradient(group.id);
      for (std::size_t i = 0; i < a.size(); ++i) {
        product += double{a[i]} * double{b[i]};
        exact_squares += double{a[i]} * double{a[i]};
        rounded_squares += double{b[i]} * double{b[i]};
      }
    }
    EXPECT_GE(product / std::sqrt(exact_squares * rounded_squares), 0.999) << golden.name;
  }
}

}  // namespace
}  // namespace kintsugi::test
