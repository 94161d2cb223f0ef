"""Bundles: several servers as one for programs, with the names and addresses by which they are known there"""
