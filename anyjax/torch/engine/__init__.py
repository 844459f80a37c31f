"""One trace of torch code: session, function mode, dispatch, fallback."""
