//! Commands of the program's own on DPDK's telemetry socket, for `dpdk-telemetry.py` and all else
//! that speaks to it.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use crate::eal::Eal;
use crate::error::{Error, Result, check};

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Values by name; DPDK's library holds 256 of them; the rest is left out.
    Named(Vec<(String, Value)>),
    /// Numbers; DPDK's library holds 512 of them; the rest is left out.
    List(Vec<u64>),
}

/// A value in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A text, which DPDK's library cuts to 127 bytes.
    Text(String),
}

type Teller = dyn Fn(&str) -> Option<Answer> + Send + Sync;

/// What answers each command. The library's callbacks carry nothing but the command's name.
static TELLERS: LazyLock<Mutex<HashMap<String, Arc<Teller>>>> = LazyLock::new(Mutex::default);

impl Eal {
    /// Lets `tell` answer `command` (as in "/calumma/epochs") from here on, for as long as the
    /// process lives. It is given what follows the command's comma, and gives `None` where that
    /// makes no sense. It is called by a thread of DPDK's.
    ///
    /// # Errors
    /// When the library refuses the command: it begins with a slash, is short, and nobody else's.
    pub fn tell(
        &self,
        command: &str,
        help: &str,
        tell: impl Fn(&str) -> Option<Answer> + Send + Sync + 'static,
    ) -> Result<()> {
        let text = |text: &str| CString::new(text).map_err(|_| Error::Nul(text.to_owned()));
        let (c_command, c_help) = (text(command)?, text(help)?);
        lock().insert(command.to_owned(), Arc::new(tell));
        // SAFETY: both texts are NUL-terminated and copied; the callback may be called at any time.
        let code = unsafe {
            dpdk_sys::rte_telemetry_register_cmd(c_command.as_ptr(), Some(answer), c_help.as_ptr())
        };
        check(code, || format!("registering the telemetry command {command}"))?;
        Ok(())
    }
}

fn lock() -> std::sync::MutexGuard<'static, HashMap<String, Arc<Teller>>> {
    TELLERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What DPDK's thread calls. A panic here would end the process, not unwind into C.
extern "C" fn answer(
    command: *const c_char,
    parameters: *const c_char,
    data: *mut dpdk_sys::rte_tel_data,
) -> c_int {
    // SAFETY: DPDK gives NUL-terminated texts that live until this returns; the second may be null.
    let (command, parameters) = unsafe {
        let parameters = if parameters.is_null() { c"" } else { CStr::from_ptr(parameters) };
        (CStr::from_ptr(command).to_string_lossy(), parameters.to_string_lossy())
    };
    let Some(tell) = lock().get(&*command).cloned() else { return -1 };
    match catch_unwind(AssertUnwindSafe(|| tell(&parameters))) {
        Ok(Some(answer)) => write(&answer, data),
        Ok(None) | Err(_) => -1,
    }
}

/// Writes an answer to where DPDK wants it.
fn write(answer: &Answer, data: *mut dpdk_sys::rte_tel_data) -> c_int {
    match answer {
        Answer::Named(values) => {
            // SAFETY: DPDK gives room for an answer that nobody else writes to.
            unsafe { dpdk_sys::rte_tel_data_start_dict(data) };
            for (name, value) in values {
                let Ok(name) = CString::new(valid(name)) else { continue };
                let code = match value {
                    // SAFETY: as above; the name is NUL-terminated and copied.
                    Value::Number(number) => unsafe {
                        dpdk_sys::calumma_tel_add_u64(data, name.as_ptr(), *number)
                    },
                    Value::Text(text) => {
                        let Ok(text) = CString::new(text.as_str()) else { continue };
                        // SAFETY: as above; both are NUL-terminated and copied.
                        unsafe {
                            dpdk_sys::rte_tel_data_add_dict_string(
                                data,
                                name.as_ptr(),
                                text.as_ptr(),
                            )
                        }
                    }
                };
                // A text that was cut is an error to the library, and added; a full answer is not.
                if code < 0 && matches!(value, Value::Number(_)) {
                    break;
                }
            }
        }
        Answer::List(numbers) => {
            // SAFETY: as above.
            unsafe { dpdk_sys::calumma_tel_start_list(data) };
            for &number in numbers {
                // SAFETY: as above.
                if unsafe { dpdk_sys::calumma_tel_push_u64(data, number) } < 0 {
                    break;
                }
            }
        }
    }
    0
}

/// A name as DPDK takes it: letters, digits, underscores, and slashes for dots.
fn valid(name: &str) -> String {
    let valid = |char: char| match char {
        '.' => '/',
        _ if char.is_ascii_alphanumeric() || char == '/' => char,
        _ => '_',
    };
    name.chars().map(valid).collect()
}
