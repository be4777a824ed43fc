"""Reads files of what ran: traces and profiles."""
