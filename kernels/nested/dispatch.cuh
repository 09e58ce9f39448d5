// From what is known at launch of the nested code to template arguments. Host code.
#pragma once

#include "kernels/device/launching.cuh"
#include "kernels/nested/launch.h"

namespace firn::kernels {

// f<Value, Meta>()
template <typename F>
cudaError_t ForMeta(const NestedJob& job, const F& f) {
  return ForValue(job.values, [&]<typename Value>() {
    return job.meta == MetaType::kFp32 ? f.template operator()<Value, float>() : f.template operator()<Value, Value>();
  });
}

// f<Value, kLanes, kPlaces>(), for the widths that have lanes.
template <typename F>
cudaError_t ForFast(const NestedLaunch& launch, const FastShape& fast, const F& f) {
  auto for_lanes = [&]<typename Value, int kLanes>() {
    if (launch.places == Places::kLinear) return f.template operator()<Value, kLanes, Places::kLinear>();
    if (launch.places == Places::kAnyRows) return f.template operator()<Value, kLanes, Places::kAnyRows>();
    return f.template operator()<Value, kLanes, Places::kAny>();
  };
  return ForValue(launch.job.values, [&]<typename Value>() {
    if (fast.lanes == 2) return for_lanes.template operator()<Value, 2>();
    if (fast.lanes == 4) return for_lanes.template operator()<Value, 4>();
    return for_lanes.template operator()<Value, 8>();
  });
}

}  // namespace firn::kernels
