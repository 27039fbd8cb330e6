// SPDX-License-Identifier: BSD-3-Clause
// std::throw_with_nested for an exception whose type is known at run time only. Needs exceptions and RTTI.
#pragma once

#include <any>
#include <exception>
#include <functional>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <typeinfo>
#include <utility>
#include <variant>

namespace shmcb::detail {

template <class... Exceptions>
struct NestableExceptions {
  /// Throws a copy of `outer` with `inner` nested, if its type is exactly one of `Exceptions`.
  static void throw_nested(const std::exception& outer, const std::exception_ptr& inner) {
    (throw_nested_if<Exceptions>(outer, inner), ...);
  }

 private:
  template <class E>
  static void throw_nested_if(const std::exception& outer, const std::exception_ptr& inner) {
    if (typeid(outer) != typeid(E)) return;
    try {
      std::rethrow_exception(inner);
    } catch (...) {  // std::nested_exception takes what is being handled
      std::throw_with_nested(static_cast<const E&>(outer));
    }
  }
};

// A wrapper must be made from the very type, so that a handler for it still matches: those of the standard library can
// be listed.
using StandardExceptions =
    NestableExceptions<std::exception, std::logic_error, std::domain_error, std::invalid_argument, std::length_error,
                       std::out_of_range, std::runtime_error, std::range_error, std::overflow_error,
                       std::underflow_error, std::system_error, std::bad_function_call, std::bad_optional_access,
                       std::bad_variant_access, std::bad_cast, std::bad_any_cast, std::bad_typeid, std::bad_alloc,
                       std::bad_array_new_length, std::bad_exception>;

/// To be called while `outer` is handled: throws it with `inner` nested inside. A type that is not the standard
/// library's cannot be wrapped without losing it, and one that has something nested already is complete: these are
/// rethrown as they are.
[[noreturn]] inline void rethrow_with_nested(const std::exception& outer, const std::exception_ptr& inner) {
  StandardExceptions::throw_nested(outer, inner);
  throw;
}

}  // namespace shmcb::detail
