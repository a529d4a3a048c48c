//! The binary `taskwheel`.

fn main() -> std::process::ExitCode {
    taskwheel::main()
}
