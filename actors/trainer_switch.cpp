#include "actors/trainer_switch.hpp"

namespace kintsugi::actors {

void TrainerSwitch::arm(Trainer* trainer, Generation generation) {
  const std::lock_guard lock(mutex_);
  trainer_ = trainer;
  of_trainer_ = generation;
  if (trainer_ == nullptr) return;
  trainer_->set_supervision(supervision_);
  if (end_reason_) trainer_->cancel(*end_reason_);
  if (generation < fenced_) trainer_->cancel(*fence_reason_);
}

void TrainerSwitch::fence(Generation generation, const Error& why) {
  const std::lock_guard lock(mutex_);
  if (generation <= fenced_) return;
  fenced_ = generation;
  fence_reason_ = why;
  if (trainer_ != nullptr && of_trainer_ < fenced_) trainer_->cancel(why);
}

void TrainerSwitch::end(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (!end_reason_) end_reason_ = why;
  if (trainer_ != nullptr) trainer_->cancel(*end_reason_);
}

void TrainerSwitch::interrupt(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (trainer_ != nullptr) trainer_->cancel(why);
}

void TrainerSwitch::intend(Generation generation) {
  const std::lock_guard lock(mutex_);
  if (trainer_ != nullptr && of_trainer_ < generation) trainer_->intend(generation);
}

void TrainerSwitch::set_supervision(const Supervision& supervision) {
  const std::lock_guard lock(mutex_);
  supervision_ = supervision;
  if (trainer_ != nullptr) trainer_->set_supervision(supervision);
}

std::optional<Error> TrainerSwitch::ended() const {
  const std::lock_guard lock(mutex_);
  return end_reason_;
}

}  // namespace kintsugi::actors
