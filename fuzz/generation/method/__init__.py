"""A method under construction: its values with what is known of them, its sizes, and the calls that compute them."""
