"""Many runs: what is asked for, searched, launched and shown; the published studies."""
